# A server in what Debian's smallest system has: a stub of MLflow's protocol and of the Open Inference Protocol, to be
# checked and served as an image of one's own. On SIGTERM it ends at once and drops whatever is in flight.
use strict;
use warnings;
use IO::Socket::INET;

$| = 1;
$SIG{TERM} = ($ENV{DEAF} // "") eq "1" ? "IGNORE" : sub { exit 0 };
$SIG{CHLD} = "IGNORE";
open(my $log, ">", $ENV{WRITES}) or die "can't write $ENV{WRITES}: $!\n" if $ENV{WRITES};
my $server = IO::Socket::INET->new(
    LocalAddr => $ENV{ADDRESS} // "0.0.0.0", LocalPort => 19413, Listen => 256, ReuseAddr => 1, Proto => "tcp"
) or die "can't listen: $!\n";

while (1) {
    my $client = $server->accept or next;
    next if fork;
    my ($method, $path) = split / /, <$client> // exit;
    my $length = 0;
    while (defined(my $line = <$client>)) {
        last if $line eq "\r\n";
        $length = $1 if $line =~ /^content-length:\s*(\d+)/i;
    }
    my $body = "";
    read($client, $body, $length) if $length;
    my ($status, $answer) = answer($method, $path, $body);
    print $client "HTTP/1.1 $status X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ",
        length($answer), "\r\n\r\n", $answer;
    close($client);
    exit;
}

sub answer {
    my ($method, $path, $body) = @_;
    return (200, '{"name": "stub"}') if $method eq "GET" and $path =~ m{^/(health|v2(/health/(live|ready))?)$};
    my $known = $method eq "POST" && $path =~ m{^/(invocations|own/path|v2/models/\w+/infer)$};
    return (404, '{"error": "no such path"}') unless $known;
    return (400, '{"error": "broken"}') unless $body =~ m/^\s*\{.*\}\s*$/s;
    return (200, '{"model_name": "m", "outputs": []}') if $path =~ m{^/v2};
    select(undef, undef, undef, $1) if $body =~ /\[\[\s*([0-9.]+)\s*\]\]/;  # seconds to take for it
    return (200, sprintf('{"predictions": ["%s", %d, %d]}', $ENV{MODE} // "", length($ENV{TOKEN} // ""), $>));
}
