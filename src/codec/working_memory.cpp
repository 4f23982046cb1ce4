#include "kernels/working_memory.hpp"

#include "base/per_thread.hpp"

namespace gradwire::kernels {
namespace {

struct Memory {
  alignas(kWorkingAlignment) unsigned char bytes[kWorkingBytes];
};

}  // namespace

void* working_memory() { return per_thread<Memory>().bytes; }

}  // namespace gradwire::kernels
