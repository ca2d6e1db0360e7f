# What the shim does in Ruby at the ready point of a template, and in its clones.
lambda do
  verbose, $VERBOSE = $VERBOSE, nil # syscall warns that it may be removed some day
  call, ready, argument, variable, unblock, made_of = 0x666f726b, 0, 1, 2, 3, 4
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
  refuse = lambda do |text|
    STDERR.puts text
    exit! 2
  end
  boot = __FILE__
  begin
    case name
    when "-"
      code = RubyVM::InstructionSequence.compile($stdin.read, "-", nil)
    when "-e"
      words.empty? and refuse.("ruby: no code specified for -e (RuntimeError)")
      code = RubyVM::InstructionSequence.compile(words.shift, "-e", nil)
    when /\A-/
      refuse.("flashfork: #{name}: a clone of Ruby takes a script, -e CODE or -; options are the template's")
    else
      File.file?(name) && File.readable?(name) or
        refuse.("ruby: No such file or directory -- #{name} (LoadError)")
      code = RubyVM::InstructionSequence.compile_file(name)
      text = File.binread(name)
      if (line = text =~ /^__END__\r?\n/)
        data = File.open(name)
        data.seek(line + Regexp.last_match[0].bytesize)
        Object.const_set(:DATA, data)
      end
    end
    $0 = name
    ARGV.replace(words)
    code.eval
  rescue SystemExit, SignalException
    raise
  rescue Exception => e
    own = e.backtrace&.index { |frame| frame.start_with?(boot) }
    e.set_backtrace(e.backtrace[0...own]) if own
    raise e
  end
end.call
