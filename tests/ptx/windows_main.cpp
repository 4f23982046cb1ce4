// ptx_windows compares the all-reduce by one kernel inside a node, interpreted, with the separate kernels, byte for
// byte. Ranks are streams of this process, whose grids run in turn and wait for each other.
#include "kernels/device/operations.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/windows_node.hpp"

int main(int argc, char** argv) {
  using namespace gradwire;
  using namespace gradwire::gpu;
  Check check("ptx_windows", argc, argv);
  kernels::load_kernels();
  kernels::load_window_kernels();
  unsigned at = 0;
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const char* spec : {"int8", "int4", "bf16", "sign"}) {
      check.part("windows of " + std::to_string(ranks) + " ranks, " + spec, [&] {
        for (const std::uint32_t count : {1U, 4096U * ranks - 5, 7 * 4096U + 3}) {
          ++at;
          compare_with_separate(check,
                                {{CodecSpec::parse(spec), at % 3 == 0 ? DType::bf16 : DType::f32},
                                 count,
                                 at % 2 == 0,
                                 at % 4 < 2 ? Kind::plain : Kind::special},
                                ranks);
        }
      });
    }
  }
  return check.finish();
}
