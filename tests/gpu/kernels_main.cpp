// gpu_kernels compares every kernel on every codec and dtype with the host reference, byte for byte. Exits 0, 1, or 77
// without a GPU.
#include "kernels/device/operations.hpp"
#include "kernels/device/status.hpp"
#include "tests/gpu/kernel_jobs.hpp"

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  namespace kernels = gradwire::kernels;
  Check check("gpu_kernels", argc, argv);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  try {
    std::printf("gpu_kernels: %s\n", describe_device().c_str());
    kernels::load_kernels();
    kernels::load_status_kernels();
    const Stream stream;
    check_comparison(check);
    // Runs with as many blocks as tiles, and with so few that each takes several.
    for (const std::uint32_t most : {0U, check.small() ? 1U : 3U}) {
      kernels::cap_blocks(most);
      check_encode(check, stream.get());
      check_decode(check, stream.get());
      check_reduce(check, stream.get());
      check_elementwise(check, stream.get());
    }
    kernels::cap_blocks(0);
    check_two_streams(check);
    check_damaged(check, stream.get());
  } catch (const std::exception& error) {
    check.fail(error.what());
  }
  return check.finish();
}
