# What the shim does in Ruby at the ready point of a template, and in its clones.
lambda do
	verbose, $VERBOSE = $VERBOSE, nil # syscall warns that it may be removed some day
	call, ready, argument, variable, unblock, made_of, ignores = 0x666f726b, 0, 1, 2, 3, 4, 5
	places = $LOAD_PATH.map(&:to_s)
	$LOADED_FEATURES.each do |name|
		next unless name.start_with?("/")
		syscall(call, made_of, name.dup)
		# In the directories before its own it was looked for in vain.
		own = places.index { |place| name.start_with?("#{place}/") } or next
		feature = name.delete_prefix("#{places[own]}/")
		places.first(own).each { |place| syscall(call, 8, "#{place}/#{feature}") if place.start_with?("/") }
	end
	STDOUT.flush
	STDERR.flush
	terminal = STDOUT.tty?
	Process.warmup if Process.respond_to?(:warmup)
	loop do
		syscall(call, ready, 5)
		break unless fork
	rescue SystemCallError => e
		raise if e.is_a?(Errno::ENOSYS)
	end
	# Ruby's fork has put back what the template blocks.
	syscall(call, unblock)
	# What is ignored when Ruby starts it leaves alone, and handles the rest; a trap of the warm-up stays.
	%w[HUP INT QUIT TERM ALRM USR1 USR2].each do |name|
		next if syscall(call, ignores, Signal.list[name]) == 0
		before = trap(name, "IGNORE")
		trap(name, before) unless before == "DEFAULT"
	end
	all = lambda do |what|
		found = []
		room = 4096
		begin
			loop do
				buffer = " " * room
				length = syscall(call, what, found.size, buffer, room)
				if length > room
					room = length
				else
					found << buffer.byteslice(0, length).force_encoding(Encoding.find("locale"))
				end
			end
		rescue Errno::ENOENT
		end
		found
	end
	words = all.(argument)
	ENV.replace(all.(variable).map { |s| s.split("=", 2) }.select { |k, v| v && !k.empty? }.reverse.to_h)
	$VERBOSE = verbose
	srand
	# Ruby has looked at its start whether lines are to be written at once.
	if STDOUT.tty? != terminal
		sync = STDOUT.sync
		STDOUT.reopen(IO.for_fd(1, STDOUT.binmode? ? "wb" : "w", autoclose: false))
		STDOUT.sync = sync
	end
	pieces = []
	ruby = File.read("/proc/self/cmdline")[/\A[^\0]*/]
	refuse = lambda do |text, status = 1|
		STDERR.puts text
		exit! status
	end
	while words.first&.match?(/\A-./m)
		option = words.shift
		break if option == "--"
		option == "-e" or
			refuse.("flashfork: #{option}: a clone of Ruby takes a script, -e CODE or -; options are the template's", 2)
		words.empty? and refuse.("#{ruby}: no code specified for -e (RuntimeError)")
		pieces << words.shift
	end
	name = pieces.empty? ? words.shift || "-" : "-e"
	boot = __FILE__
	sequence = RubyVM::InstructionSequence
	# Messages that show the line of an error in -e would look for it in what ruby was started with.
	keep = RubyVM.respond_to?(:keep_script_lines) && [RubyVM.keep_script_lines]
	# Options of a #! line, as load_file_internal in ruby.c finds them.
	first_line = lambda do |line|
		STDERR.puts "#{ruby}: warning: shebang line ending with \\r may cause problems" if line.end_with?("\r\n")
		line.include?("ruby") or
			refuse.("flashfork: #{name}: its first line names another program: run that, or ruby itself (-x)", 2)
		line[/ruby.*?( -.*)/m, 1]&.split&.each do |option|
			case option
			when "-w", "-W", "-W2" then Warning[:deprecated] = $VERBOSE = true
			when "-W1" then $VERBOSE = false
			when "-W0" then $VERBOSE = nil
			else refuse.("flashfork: #{name}: its first line has the option #{option}: run ruby itself", 2)
			end
		end
	end
	# A program that can be read once, up to its __END__, behind which it goes on as DATA. The parser says where that is.
	read = lambda do |io, encoding|
		keep or refuse.("flashfork: #{name}: Ruby before 3.1 can't be given a program with __END__ or from a stream", 2)
		before, RubyVM.keep_script_lines = RubyVM.keep_script_lines, true
		verbose, $VERBOSE = $VERBOSE, nil
		encodings = [Encoding.default_external, Encoding.default_internal]
		io.set_encoding(encoding, "-")
		lines = sequence.compile(io, name, nil).script_lines
		comments = lines.first(2).take_while { |line| line.start_with?("#") }
		encodings = sequence.compile("#{comments.join}\n__ENCODING__".force_encoding(encoding)).eval if name != "-"
		io.set_encoding(*encodings)
		# The last line may be that of a here-document, too: then what follows it counts.
		if lines.last&.match?(/\A__END__\r?\n?\z/)
			begin
				sequence.compile("#{lines.join.chomp}\n1 1\n")
				Object.const_set(:DATA, io)
			rescue SyntaxError
			end
		end
		lines.join
	ensure
		$VERBOSE = verbose
		RubyVM.keep_script_lines = before
	end
	begin
		RubyVM.keep_script_lines = true if keep && name == "-e"
		case name
		when "-e"
			code = sequence.compile(pieces.join("\n"), "-e", nil)
		else
			begin
				raise Errno::EISDIR if name != "-" && File.directory?(name)
				file = name == "-" ? STDIN : File.open(name)
			rescue SystemCallError => e
				refuse.("#{ruby}: #{e.class.new.message} -- #{name} (LoadError)")
			end
			regular = name != "-" && File.file?(name)
			if regular
				text = file.binmode.read
				first_line.(text[/.*\n?/]) if text.start_with?("#!")
				code = sequence.compile_file(name)
				read.(File.open(name), "UTF-8") if text.match?(/^__END__\r?$/)
			else
				file.set_encoding("BINARY")
				first = file.getbyte
				if first == 35
					second = file.getbyte
					if second == 33 && (line = file.gets)
						first_line.("#!#{line}")
						file.ungetbyte("!\n")
					elsif second
						file.ungetbyte(second)
					end
				end
				file.ungetbyte(first) if first
				code = sequence.compile(read.(file, name == "-" ? Encoding.find("locale") : "UTF-8"), name, nil)
			end
		end
	rescue SyntaxError => e
		abort e.message
	ensure
		RubyVM.keep_script_lines = keep[0] if keep
	end
	$0 = name
	ARGV.replace(words)
	begin
		code.eval
	rescue SystemExit
		raise
	rescue Exception => e
		# Messages show the program's frames only, as ruby names them.
		shown = e
		while shown
			frames = shown.backtrace&.take_while { |frame| !frame.start_with?(boot) }
			shown.set_backtrace(frames.map { |frame| frame.sub(/<compiled>'\z/, "<main>'") }) if frames
			shown = shown.cause
		end
		raise e
	end
end.call
