# What the shim does in Perl at the ready point of a template, and in its clones, while the program is compiled. $flashfork is the
# descriptor that perl reads the program from: in a clone it becomes the caller's. What is below is called once this text is compiled and
# left, when the parser is the program's.
BEGIN { $^H = 0; ${^WARNING_BITS} = '' }
{
	my ($name, $named);
	# The first CHECK block there is: it runs behind the program's own.
	CHECK {
		my $errno = $! + 0;
		delete $SIG{__DIE__} if ref $SIG{__DIE__} && $SIG{__DIE__} == $named;
		if ($^C) {
			# Perl would say so next, of the descriptor.
			print STDERR "$name syntax OK\n";
			close STDERR;
		}
		# What follows the program on standard input is read there.
		my (@stashes, %seen) = $name eq '-' ? \%main:: : ();
		while (my $stash = shift @stashes) {
			next if $seen{$stash}++;
			for my $key (keys %$stash) {
				my $glob = \$stash->{$key};
				next if ref $glob ne 'GLOB';
				push @stashes, *$glob{HASH} if $key =~ /::\z/;
				my $io = $key eq 'DATA' ? *$glob{IO} : undef;
				next if !$io || (fileno($io) // -1) != $flashfork;
				# As perl does where the program is in UTF-8.
				binmode STDIN, ':utf8' if grep { $_ eq 'utf8' } PerlIO::get_layers(*$glob);
				*$glob = *STDIN{IO};
			}
		}
		# Where standard input was the program, perl has no file left at its end to ask for its number.
		$! = $name eq '-' ? 9 : $errno;
	}
	sub {
		for my $stream (\*STDOUT, \*STDERR) {
			my $before = select $stream;
			my $flush = $|;
			$| = 1;
			$| = $flush;
			select $before;
		}
		my ($call, $ready, $argument, $variable, $unblock, $made_of, undef, $program) = (0x666f726b, 0 .. 6);
		delete @INC{grep { m{^/dev/fd/\d+\z} } keys %INC};
		while (my ($key, $file) = each %INC) {
			next if !defined $file || ref $file || $file !~ m{^/};
			syscall $call, $made_of, my $text = "$file\0";
			# In the directories before its own it was looked for in vain.
			for my $place ($key =~ m{^/} ? () : grep { !ref && m{^/} } @INC) {
				last if $file eq "$place/$key";
				syscall $call, 8, my $text = "$place/$key\0";
			}
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
		my @words = $all->($argument);
		%ENV = map { /^([^=]+)=(.*)$/s ? ($1, $2) : () } reverse $all->($variable);
		srand;
		$^T = time;
		# Whether a stream is a terminal's is looked at when its layers are made: they are made again. The streams stay
		# perl's own, or it wouldn't notice at the end that what they hold can't be written.
		for my $stream (\*STDIN, \*STDOUT) {
			my (undef, @layers) = PerlIO::get_layers($stream);
			binmode $stream, join '', map(':pop', grep { $_ ne 'utf8' } @layers), map(":$_", @layers);
		}
		my $end = sub { my $status = shift; print STDERR @_, "\n"; require POSIX; POSIX::_exit($status) };
		my $refuse = sub { $end->(2, @_) };
		@ARGV = @words;
		my $lines = '';
		while (@ARGV && $ARGV[0] =~ /^-./s) {
			my $option = shift @ARGV;
			last if $option eq '--';
			$option eq '-e' or $refuse->("flashfork: $option: a clone of Perl takes a script, -e CODE or -; options are the template's");
			if (!@ARGV) {
				# Perl ends with what the look at its streams has left: the last is this one.
				$! = 0;
				-t STDERR and 1;
				sysseek STDERR, 0, 1;
				$end->($! + 0 || 255, 'No code specified for -e.');
			}
			($name, $lines) = ('-e', $lines . shift(@ARGV) . "\n");
		}
		$name //= shift(@ARGV) // '-';
		# A #line can't say what it is called.
		$name =~ /\n|".*\s|\s.*"|^".*"/ and $refuse->("flashfork: a clone of Perl can't run a script of such a name; run perl itself: $name");
		# The first descriptor may have the number of a closed stream: perl's own close would leave it to the stream.
		my $is_file = $name ne '-e' && $name ne '-';
		my $path = $is_file ? $name : '/dev/null';
		my $file = syscall 2, $path, 02000000;              # open, O_RDONLY | O_CLOEXEC
		# As perl ends: with the error's number, or what the look for a terminal has left in its place.
		$file >= 0 or $end->($! + 0, "Can't open perl script \"$name\": $!");
		syscall 292, $file, $flashfork, 02000000;           # dup3, O_CLOEXEC
		syscall 3, $file;                                   # close
		$is_file && -d $path and $end->(25, "Can't open perl script \"$name\": Is a directory");
		# The first line, which perl reads as well, or, where that is not possible, gets from here.
		my $first = '';
		if (!$is_file) {
			# A line that is read as one would be named in messages.
			1 while $name eq '-' && $lines !~ /\n/ && read STDIN, $lines, 1, length $lines;
			utf8::encode($lines) if utf8::is_utf8($lines);
			# A mark is one where the place in the file shows that it begins there.
			$lines =~ s/^\xEF\xBB\xBF// if $name eq '-' && tell(STDIN) == length $lines;
			$lines =~ /^(.*\n?)/ and $first = $1;
		} elsif (-f $path) {
			my $len = syscall 0, $flashfork, $first = "\0" x 4096, 4096;    # read
			$len = 0 if $len < 0;
			$first = substr($first, 0, $len) =~ s/\n\K.*//sr;
			syscall 8, $flashfork, 0, 0;                    # lseek
		} else {
			my $byte = "\0";
			$first .= $byte while $first !~ /\n/ && syscall(0, $flashfork, $byte, 1) == 1;
			$lines = $first =~ s/^\xEF\xBB\xBF//r;
		}
		my $left_out = 0;
		if ($first =~ /^(?:\xEF\xBB\xBF)?\s*:?(#!\s*(\S*)\s*(\S*).*)/s) {
			my ($line, $interpreter, $word) = ($1, $2, $3);
			# Another program's, which perl starts in its own place.
			if ($line !~ /perl|indir/ && $interpreter ne '') {
				exec { $interpreter } $interpreter, $word eq '' ? () : $word, @words;
				$end->($! + 0, "Can't exec $interpreter at $name line 1.");
			}
			# Switches, as moreswitches in perl.c finds them. It looks for those of -s among the words of the template.
			my ($rest) = $line =~ /perl -/ ? $line =~ /(?<=perl -)(.*)/s : $line =~ /perl\S*[ \t]*-(.*)/s;
			$rest //= '';
			my $value = qr/0[0-7]{0,3}|l(?:0[0-7]{0,3}|[1-7][0-7]{0,2})?|[Fi]\S*|[CD]\w*|I\s*\S+\s*(?:[^-\s]\S*\s*)*-?/;
			my ($kept, $has_s) = '';
			while ($rest =~ /\G($value| +-|[acdgnpstTuUvwWX])/gc) {
				$1 eq 'd' and $refuse->("flashfork: $name: its first line asks for the debugger (-d): run perl itself");
				if ($1 eq 's') { $has_s = 1 } else { $kept .= $1 }
			}
			if ($has_s) {
				$kept .= substr $rest, pos($rest) // 0;
				# Without them, in place of the file's first line.
				$left_out = 1 if $lines eq '';
				my $others = $name eq '-e' ? substr $lines, length $first : '';
				$lines = substr($line, 0, length($line) - length $rest) . $kept . $others;
				while (@ARGV && $ARGV[0] =~ /^-(.+)/s) {
					my ($switch, $set) = split /=/, $1, 2;
					shift @ARGV;
					last if $switch eq '-' && !defined $set;
					${$switch =~ /::|'/ ? $switch : "main::$switch"} = $set // 1;
				}
			}
		}
		# As -CA asks for.
		if (${^UNICODE} & 32 && (!(${^UNICODE} & 64) || ${^UTF8LOCALE})) {
			utf8::decode($_) for @ARGV;
		}
		# Messages of perl itself, while it compiles, have the name that it was started with.
		$named = sub { die $_[0] =~ s{/dev/fd/$flashfork\b}{$name}r if !ref $_[0] && $_[0] =~ m{/dev/fd/$flashfork\b} };
		$SIG{__DIE__} = $named;
		my $quoted = $name =~ /"/ ? $name : "\"$name\"";
		# Under -T what comes of standard input is tainted, which perl doesn't mind where that is the program.
		$lines =~ /(.*)/s and $lines = "#line 1 $quoted\n$1";
		syscall($call, $program, $name, $lines, length $lines, $left_out) == 0
			or $refuse->("flashfork: this perl doesn't export its functions: run it without flashfork");
		# It knows the directory of the program that was there when it was loaded, and a program won't load it anew.
		if ($INC{'FindBin.pm'}) {
			local ($@, $SIG{__DIE__});
			eval { FindBin::again() };
		}
		# It has copies of the streams that it found, and fails a program only in the process that has loaded it.
		if ($INC{'Test2/API.pm'}) {
			local ($@, $SIG{__DIE__});
			eval {
				my ($loaded, $builder) = (Test2::API::test2_load_done(), $INC{'Test/Builder.pm'} && Test::Builder->new);
				Test2::API::test2_post_preload_reset();
				for my $hub (Test2::API::test2_stack()->all) {
					my $format = $hub->format;
					$hub->{pid} = $$;
					next if !$format || !$format->isa('Test2::Formatter::TAP');
					my $handles = $format->_open_handles;
					# Where it tells of what is still to be done.
					$handles->[2] = $handles->[0] if @{$format->handles} > 2;
					$format->set_handles($handles);
					$builder->{Orig_Handles} = [@$handles] if $builder;
				}
				$builder->{Original_Pid} = $$ if $builder;
				Test2::API::test2_load() if $loaded;
			};
		}
		# What a program finds that begins; its exit status may come of it.
		$! = 0;
	}
}
