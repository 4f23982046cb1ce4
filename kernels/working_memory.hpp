// Memory for what a core on the host keeps of a tile while it works. Not on the stack: jobs call from threads whose
// stacks are as small as 16 KiB.
#ifndef GRADWIRE_KERNELS_WORKING_MEMORY_HPP
#define GRADWIRE_KERNELS_WORKING_MEMORY_HPP

#include <cstddef>
#include <type_traits>

namespace gradwire::kernels {

inline constexpr std::size_t kWorkingBytes = 65536;
inline constexpr std::size_t kWorkingAlignment = 64;

/// Returns kWorkingBytes bytes of the calling thread, the same memory at each call, with undefined contents. A thread's
/// first call may throw Error(out_of_memory). It is defined in src/codec.
[[nodiscard]] void* working_memory();

/// The same as a `Work`. A core that has it calls no other one that takes it too.
template <class Work>
[[nodiscard]] Work& working_memory_as() {
  // NOLINTNEXTLINE(misc-redundant-expression): only for a Work that has just these figures
  static_assert(sizeof(Work) <= kWorkingBytes && alignof(Work) <= kWorkingAlignment);
  static_assert(std::is_trivially_default_constructible_v<Work> && std::is_trivially_destructible_v<Work>);
  return *static_cast<Work*>(working_memory());
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_WORKING_MEMORY_HPP
