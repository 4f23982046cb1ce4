// ptx_windows compares the all-reduce by one kernel inside a node, interpreted, with the separate kernels, byte for
// byte. Ranks are streams of this process, whose grids run in turn and wait for each other.
#include "kernels/device/operations.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/windows_node.hpp"

namespace gradwire::gpu {
namespace {

void compare(Check& check, const WindowCall& call, std::uint32_t ranks) {
  const std::string what = call.codec.name() + " x " + std::to_string(call.count) + ", " + std::to_string(ranks) +
                           " ranks" + (call.feedback ? ", feedback" : "");
  const WindowNode node(ranks, window_slot_bytes(call.codec, call.count, ranks));
  const WindowRanks got = make_window_ranks(call, ranks);
  const WindowRanks wanted = make_window_ranks(call, ranks);
  const Stream stream;
  std::vector<Memory> frames;
  for (int step = 0; step < 2; ++step) {  // the second one has the residuals of the first
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      enqueue(node, call, rank, *got[rank]);
    }
    synchronize();
    run_separately(call, wanted, frames, static_cast<cudaStream_t>(stream.get()));
    synchronize();
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string here = what + ", rank " + std::to_string(rank);
    check.that(node.words(rank).missing == 0, here + ": a rank was waited for in vain");
    check.same_elements(call.codec.dtype, read_intact(check, got[rank]->values, here),
                        read_intact(check, wanted[rank]->values, here), here + ", result");
    check.same_bytes(read_intact(check, got[rank]->local, here), read_intact(check, wanted[rank]->local, here),
                     here + ", local residual");
    check.same_bytes(read_intact(check, got[rank]->owner, here), read_intact(check, wanted[rank]->owner, here),
                     here + ", owner residual");
  }
}

}  // namespace
}  // namespace gradwire::gpu

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
          compare(check,
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
