# A server of the Open Inference Protocol in what Debian's smallest system has: a stub, to be checked as an image.
use strict;
use warnings;
use IO::Socket::INET;

my $deaf = ($ENV{DEAF} // "") eq "1";
$SIG{TERM} = $deaf ? "IGNORE" : sub { exit 0 };
open(my $log, ">", $ENV{WRITES}) or die "can't write $ENV{WRITES}: $!\n" if $ENV{WRITES};
my $server = IO::Socket::INET->new(
    LocalAddr => $ENV{ADDRESS} // "0.0.0.0", LocalPort => 19413, Listen => 64, ReuseAddr => 1, Proto => "tcp"
) or die "can't listen: $!\n";

while (1) {
    my $client = $server->accept or next;
    my ($method, $path) = split / /, <$client> // next;
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
}

sub answer {
    my ($method, $path, $body) = @_;
    return (200, '{"name": "stub"}') if $method eq "GET" and $path =~ m{^/v2(/health/(live|ready))?$};
    return (404, '{"error": "no such path"}') unless $method eq "POST" and $path =~ m{^/v2/models/\w+/infer$};
    return (400, '{"error": "broken"}') unless $body =~ m/^\s*\{.*\}\s*$/s;
    return (200, '{"model_name": "m", "outputs": []}');
}
