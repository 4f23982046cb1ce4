// gpu_kernels: every kernel on every codec and dtype against the host reference, byte for byte. Exits 0, 1, or 77
// without a GPU.
#include "tests/gpu/kernel_jobs.hpp"

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  Check check("gpu_kernels", argc, argv);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  try {
    std::printf("gpu_kernels: %s\n", describe_device().c_str());
    const Stream stream;
    check_encode(check, stream.get());
    check_decode(check, stream.get());
    check_reduce(check, stream.get());
    check_elementwise(check, stream.get());
    check_two_streams(check);
    check_damaged(check, stream.get());
  } catch (const std::exception& error) {
    check.fail(error.what());
  }
  return check.finish();
}
