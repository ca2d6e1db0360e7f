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
    # Whether a stream is a terminal's is looked at when its layers are made: they are made again. The streams stay
    # perl's own, or it wouldn't notice at the end that what they hold can't be written.
    for my $stream (\*STDIN, \*STDOUT) {
        my (undef, @layers) = PerlIO::get_layers($stream);
        binmode $stream, join '', map(':pop', grep { $_ ne 'utf8' } @layers), map(":$_", @layers);
    }
    my ($name, $text) = shift @ARGV;
    my $end = sub { my $status = shift; print STDERR @_, "\n"; require POSIX; POSIX::_exit($status) };
    my $refuse = sub { $end->(2, @_) };
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
        # As perl ends: with the error's number, or what the look for a terminal has left in its place.
        open my $file, '<', $name or $end->($! + 0, "Can't open perl script \"$name\": $!");
        -d $file and $end->($! + 0, "Can't open perl script \"$name\": Is a directory");
        local $/;
        $text = <$file>;
    }
    $0 = $name;
    $text =~ s/^\xEF\xBB\xBF//;
    my $line = $text =~ s/^(#!.*\n)// ? $1 : '';
    my $number = $line eq '' ? 1 : 2;
    $text = "$line#line $number \"$name\"\n$text";
    # Messages of perl itself, while it compiles, have the name that it was started with.
    my $named = sub { die $_[0] =~ s{/dev/fd/$flashfork\b}{$name}r if !ref $_[0] && $_[0] =~ m{/dev/fd/$flashfork\b} };
    $SIG{__DIE__} = $named;
    INIT { delete $SIG{__DIE__} if ref $SIG{__DIE__} && $SIG{__DIE__} == $named }
    # The first descriptor may have the number of a closed stream: perl's own close would leave it to the stream.
    my ($label, $file) = ('flashfork-script');
    my $memfd = syscall 319, $label, 1;             # memfd_create, MFD_CLOEXEC
    syscall 292, $memfd, $flashfork, 02000000;      # dup3, O_CLOEXEC
    syscall 3, $memfd;                              # close
    $memfd >= 0 && open $file, '+>&=', $flashfork or $refuse->("flashfork: no memory for $name: $!");
    binmode $file;
    my $out = select $file;
    $| = 1;
    {
        local $SIG{XFSZ} = 'IGNORE';
        print $text or $refuse->("flashfork: can't hold $name: $!; is there a limit on the size of files (ulimit -f)?");
    }
    select $out;
    seek $file, 0, 0;
    close $file;
    # What a program finds that begins; its exit status may come of it.
    $! = 0;
}
1;
