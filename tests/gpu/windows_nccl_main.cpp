// gpu_windows_nccl asks whether NCCL makes symmetric windows for several ranks on one GPU, and tests them where it
// does. Each rank is a process, started by tests/gpu/ranks. That it makes none is an answer, too, with NCCL's reason.
// Exits 0, 1, or 77 without a GPU.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/window_operations.hpp"
#include "memory/cuda_nccl_windows.hpp"
#include "tests/gpu/ranks_world.hpp"
#ifdef GRADWIRE_NCCL_DEVICE_POINTERS
#include "tests/gpu/windows_nccl_pointer.hpp"
#endif

namespace gradwire::gpu {
namespace {

constexpr std::uint32_t kBlocks = 8;
constexpr std::uint32_t kSlotBytes = 1 << 16;
constexpr std::uint64_t kTimeoutNs = 20'000'000'000;

// Texts of at most 511 characters, by NCCL's all-gather.
std::vector<std::string> gather(const World& world, std::string mine) {
  constexpr std::size_t kEach = 512;
  const auto ranks = static_cast<std::size_t>(world.world_size());
  mine.resize(std::min(mine.size(), kEach - 1));
  Bytes words(ranks * kEach);
  std::memcpy(words.data() + static_cast<std::size_t>(world.rank()) * kEach, mine.data(), mine.size());
  const Memory memory{words};
  std::byte* all = memory.data();
  nccl(ncclAllGather(all + static_cast<std::size_t>(world.rank()) * kEach, all, kEach, ncclUint8, world.communicator(),
                     world.stream()),
       "ncclAllGather of texts");
  cuda(cudaStreamSynchronize(world.stream()), "gathering texts");
  words = memory.read();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(words.data() + rank * kEach));
  }
  return texts;
}

memory::NcclWindowFunctions functions(std::string& how) {
  memory::NcclWindowFunctions found;
  how = "addresses by the host";
#ifdef GRADWIRE_NCCL_DEVICE_POINTERS
  if (found.find() == "ncclGetPeerDevicePointer") {
    found.get_peer_device_pointer = &peer_pointer_by_kernel;
    found.get_error_string = reinterpret_cast<const char* (*)(int)>(&ncclGetErrorString);
    how = "addresses by a kernel";
    return found;
  }
#endif
  const std::string missing = found.find();
  return missing.empty() ? found : throw std::runtime_error("this NCCL has no " + missing);
}

// Ranks that share a GPU take turns, so the kernels meet, but slowly.
void check_windows(Check& check, const World& world, const memory::PeerWindows& windows,
                   const kernels::WindowShape& shape) {
  void* words = nullptr;
  cuda(cudaHostAlloc(&words, sizeof(kernels::WindowWords), cudaHostAllocPortable), "cudaHostAlloc");
  kernels::WindowPlaces places{.shape = shape, .words = new (words) kernels::WindowWords, .timeout_ns = kTimeoutNs};
  for (int rank = 0; rank < world.world_size(); ++rank) {
    places.window[rank] = reinterpret_cast<std::uint8_t*>(windows.window(rank));
  }
  kernels::check_windows(places, world.stream());
  cuda(cudaStreamSynchronize(world.stream()), "the test of windows");
  check.that(places.words->tested == kernels::all_tested_words(shape),
             "words of other ranks are not as they were sent");
  static_cast<void>(gather(world, "done"));  // nobody unmaps a window that another rank still writes to
  cudaFreeHost(words);
}

int run(Check& check) {
  const std::string name = "symmetric windows of several ranks on one GPU";
  const bool reports = environment("RANK") == "0";
  if (!reports) {
    check.write_no_rows();
  }
  std::unique_ptr<const World> world;
  std::string why;
  try {
    world = std::make_unique<const World>();
  } catch (const std::exception& error) {  // of ranks that NCCL takes to be on one host
    why = error.what();
  }
  std::string how;
  if (world != nullptr) {
    kernels::load_window_kernels();
    const kernels::WindowShape shape{static_cast<std::uint32_t>(world->world_size()),
                                     static_cast<std::uint32_t>(world->rank()), kBlocks, kSlotBytes};
    const memory::NcclWindowFunctions nccl_functions = functions(how);
    const auto windows = memory::NcclPeerWindows::open(
        world->communicator(), kernels::window_bytes(shape), world->rank(),
        [&](const std::string& mine) { return gather(*world, mine); }, why, &nccl_functions);
    if (windows != nullptr) {
      check.part("symmetric windows", [&] { check_windows(check, *world, *windows, shape); });
      why = how;
      check.row(name, "yes", "", "", "info", why);
      return check.finish();
    }
  }
  check.that(!why.empty(), "NCCL makes no windows, without a reason");
  std::replace(why.begin(), why.end(), '\n', ' ');
  check.row(name, "no", "", "", "info", why);
  return check.finish();
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  return gradwire::gpu::rank_main("gpu_windows_nccl", argc, argv, &gradwire::gpu::run);
}
