// One unit of the CUDA library and one of the tests' emulated library include this file.
#include "kernels/device/simt.hpp"
#include "kernels/device/status.hpp"

namespace gradwire::kernels {

static_assert(kNoteWords == simt::kThreads);

GRADWIRE_KERNEL count_note(GRADWIRE_PARAMETER(std::uint32_t*) notes, GRADWIRE_PARAMETER(std::uint32_t*) steps) {
  const bool found = notes[simt::thread()] != 0;
  if (found) {
    notes[simt::thread()] = 0;
  }
  if (simt::sync_or(found) && simt::thread() == 0) {
    *steps += 1;
  }
}

void count_nonfinite(std::uint32_t* notes, std::uint32_t* steps, void* stream) {
  simt::launch("count_nonfinite", count_note, 1, stream, notes, steps);
}

void load_status_kernels() { simt::load_kernel("count_nonfinite", count_note); }

}  // namespace gradwire::kernels
