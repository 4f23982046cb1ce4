// One unit of the CUDA library and one of the tests' emulated library include this file.
#include "kernels/device/simt.hpp"
#include "kernels/device/status.hpp"

namespace gradwire::kernels {

GRADWIRE_KERNEL count_note(GRADWIRE_PARAMETER(std::uint32_t*) note, GRADWIRE_PARAMETER(std::uint32_t*) steps) {
  if (simt::thread() == 0 && *note != 0) {
    *note = 0;
    *steps += 1;
  }
}

void count_nonfinite(std::uint32_t* note, std::uint32_t* steps, void* stream) {
  simt::launch("count_nonfinite", count_note, 1, stream, note, steps);
}

void load_status_kernels() { simt::load_kernel("count_nonfinite", count_note); }

}  // namespace gradwire::kernels
