# What the shim does in Perl at the ready point of a template, and in its clones, while the program is compiled. $flashfork is the
# descriptor that perl reads the program from: in a clone it becomes the caller's.
{
    for my $stream (\*STDOUT, \*STDERR) {
        my $before = select $stream;
        my $flush = $|;
        $| = 1;
        $| = $flush;
        select $before;
    }
    my ($call, $ready, $argument, $variable, $unblock, $made_of) = (0x666f726b, 0 .. 4);
    for my $name (grep { defined && !ref && m{^/} } values %INC) {
        syscall $call, $made_of, my $text = "$name\0";
    }
    while (syscall($call, $ready, 4) == 0) {
        my $pid = fork;
        last if defined $pid && $pid == 0;
    }
    # Perl's fork has put back what the template blocks.
    syscall $call, $unblock;
    my $all = sub {
        my ($what, $room, @all) = (shift, 4096);
        for (;;) {
            my $buffer = "\0" x $room;
            my $len = syscall $call, $what, scalar(@all), $buffer, $room;
            last if $len < 0;
            if ($len > $room) { $room = $len; redo }
            push @all, substr $buffer, 0, $len;
        }
        @all;
    };
    @ARGV = $all->($argument);
    %ENV = map { /^([^=]+)=(.*)$/s ? ($1, $2) : () } reverse $all->($variable);
    srand;
    $^T = time;
    # Whether a stream is a terminal's is looked at when it is made.
    open STDIN, '<&=', 0;
    open STDOUT, '>&=', 1;
    my ($name, $text) = shift @ARGV;
    my $refuse = sub { print STDERR @_, "\n"; require POSIX; POSIX::_exit(2) };
    if (!defined $name || $name eq '-') {
        $name = '-';
        local $/;
        $text = <STDIN>;
    } elsif ($name eq '-e') {
        @ARGV or $refuse->('No code specified for -e.');
        $text = shift(@ARGV) . "\n";
    } elsif ($name =~ /^-/) {
        $refuse->("flashfork: $name: a clone of Perl takes a script, -e CODE or -; options are the template's");
    } else {
        open my $file, '<', $name or $refuse->("Can't open perl script \"$name\": $!");
        local $/;
        $text = <$file>;
    }
    $0 = $name;
    my $line = $text =~ s/^(#!.*\n)// ? $1 : '';
    my $number = $line eq '' ? 1 : 2;
    $text = "$line#line $number \"$name\"\n$text";
    my ($label, $file) = ('flashfork-script');
    my $memfd = syscall 319, $label, 1;    # memfd_create, MFD_CLOEXEC
    open $file, '+>&=', $memfd or $refuse->("flashfork: no memory for $name: $!");
    binmode $file;
    my $out = select $file;
    $| = 1;
    {
        local $SIG{XFSZ} = 'IGNORE';
        print $text or $refuse->("flashfork: can't hold $name: $!; is there a limit on the size of files (ulimit -f)?");
    }
    select $out;
    seek $file, 0, 0;
    syscall 33, $memfd, $flashfork;        # dup2
    close $file;
}
1;
