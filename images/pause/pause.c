/* Holds a pod's namespaces: waits, reaps what is left to it, ends when asked to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

static int on(int number, void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  return sigaction(number, &action, 0);
}

int main(void) {
  if (on(SIGINT, end, 0) || on(SIGTERM, end, 0) || on(SIGCHLD, reap, SA_NOCLDSTOP)) return 1;
  for (;;) pause();
}
