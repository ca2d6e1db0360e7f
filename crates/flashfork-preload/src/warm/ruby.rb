# What the shim does in Ruby at the ready point of a template, and in its clones.
lambda do
  verbose, $VERBOSE = $VERBOSE, nil # syscall warns that it may be removed some day
  call, ready, argument, variable, unblock, made_of, ignores = 0x666f726b, 0, 1, 2, 3, 4, 5
  $LOADED_FEATURES.each { |name| syscall(call, made_of, name.dup) if name.start_with?("/") }
  STDOUT.flush
  STDERR.flush
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
  STDOUT.sync = true if STDOUT.tty?
  name = words.shift || "-"
  ruby = File.read("/proc/self/cmdline")[/\A[^\0]*/]
  refuse = lambda do |text, status = 1|
    STDERR.puts text
    exit! status
  end
  boot = __FILE__
  # Messages that show the line of an error in -e would look for it in what ruby was started with.
  keep = RubyVM.respond_to?(:keep_script_lines) && [RubyVM.keep_script_lines]
  begin
    RubyVM.keep_script_lines = true if keep && name == "-e"
    case name
    when "-"
      code = RubyVM::InstructionSequence.compile($stdin.read, "-", nil)
    when "-e"
      words.empty? and refuse.("#{ruby}: no code specified for -e (RuntimeError)")
      code = RubyVM::InstructionSequence.compile(words.shift, "-e", nil)
    when /\A-/
      refuse.("flashfork: #{name}: a clone of Ruby takes a script, -e CODE or -; options are the template's", 2)
    else
      begin
        raise Errno::EISDIR if File.directory?(name)
        text = File.binread(name)
      rescue SystemCallError => e
        refuse.("#{ruby}: #{e.class.new.message} -- #{name} (LoadError)")
      end
      # What is no file, as a pipe, can be read once.
      file = File.file?(name)
      code = if file
        RubyVM::InstructionSequence.compile_file(name)
      else
        RubyVM::InstructionSequence.compile(text.force_encoding("UTF-8"), name, nil)
      end
      if file && (line = text =~ /^__END__\r?\n/)
        data = File.open(name)
        data.seek(line + Regexp.last_match[0].bytesize)
        data.lineno = text.byteslice(0, data.pos).count("\n")
        Object.const_set(:DATA, data)
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
