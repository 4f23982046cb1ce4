// ptx_windows compares the all-reduce by one kernel inside a node, interpreted, with the separate kernels, byte for
// byte, and lets words get lost and ranks be missing. Ranks are streams of this process, whose grids run in turn and
// wait for each other.
#include "kernels/device/operations.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/windows_node.hpp"

int main(int argc, char** argv) {
  using namespace gradwire;
  using namespace gradwire::gpu;
  Check check("ptx_windows", argc, argv);
  constexpr std::uint32_t kFewBlocks = 2;      // of which each has several tiles of a shard
  constexpr std::uint64_t kDeadline = 20'000;  // ns of the interpreter's clock, which each look at it advances
  kernels::load_kernels();
  kernels::load_window_kernels();
  unsigned at = 0;
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const char* spec : {"int8", "int4", "bf16", "sign"}) {
      check.part("windows of " + std::to_string(ranks) + " ranks by " + spec, [&] {
        for (const std::uint32_t count : {1U, 4096U * ranks - 5, 7 * 4096U + 3}) {
          ++at;
          compare_with_separate(check,
                                {{CodecSpec::parse(spec), at % 3 == 0 ? DType::bf16 : DType::f32},
                                 count,
                                 at % 2 == 0,
                                 at % 4 < 2 ? Kind::plain : Kind::special,
                                 count > 4096 * ranks ? kFewBlocks : kernels::kMostWindowBlocks},
                                ranks);
        }
      });
    }
  }
  check.part("windows, tested", [&] {
    check_windows_test(check, 2, 5008, kFewBlocks);
    check_windows_test(check, 3, 256, kernels::kMostWindowBlocks);
    check_lost_words(check, kDeadline);
  });
  check.part("windows without a rank", [&] {
    check_missing_rank(check, 7 * 4096 + 3, kDeadline, 0);
    check_late_rank(check, 7 * 4096 + 3);
  });
  check.part("windows for another call", [&] { check_other_call(check); });
  return check.finish();
}
