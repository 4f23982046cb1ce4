#include "kernels/working_memory.hpp"

#include "base/per_thread.hpp"
#include "memory/block.hpp"

namespace gradwire::kernels {
namespace {

struct Memory {
  memory::Block block{kWorkingBytes, memory::MemoryUse::frames};  // of pages, so it is aligned
};

}  // namespace

void* working_memory() { return per_thread<Memory>().block.data(); }

}  // namespace gradwire::kernels
