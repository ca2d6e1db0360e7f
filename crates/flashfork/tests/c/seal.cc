// The header in C++: no cast, no struct keyword where the name is unambiguous, a lambda as the callback.
#include <cstdio>
#include <flashfork.h>
#include <vector>

int main()
{
    std::vector<char> memory(16 << 20, 7);
    size_t mappings = 0;
    flashfork_seal_options options{};
    options.each_vma = [](const flashfork_vma_report *, void *data) { ++*static_cast<size_t *>(data); };
    options.each_vma_data = &mappings;
    struct flashfork_stats stats;
    if (flashfork_seal(&options, nullptr) != 0 || flashfork_stats(&stats) != 0 || mappings == 0)
        return 1;
    std::puts(flashfork_version());
    return memory[1 << 20] == 7 ? 0 : 1;
}
