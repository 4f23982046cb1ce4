// gpu_windows checks the all-reduce by one kernel inside a node on one GPU: ranks are streams of this process, and then
// processes, whose windows go by CUDA IPC. Exits 0, 1, or 77 without a GPU.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "memory/cuda_windows.hpp"
#include "tests/gpu/device_cuda.hpp"
#include "tests/gpu/windows_node.hpp"

namespace gradwire::gpu {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;  // ns

const Case kInt8{CodecSpec::parse("int8"), DType::f32};

void run_all(const WindowNode& node, const WindowCall& call, const WindowRanks& memory) {
  for (std::uint32_t rank = 0; rank < node.ranks(); ++rank) {
    enqueue(node, call, rank, *memory[rank]);
  }
  synchronize();
}

void check_bytes(Check& check) {
  unsigned at = 0;
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U}) {
    for (const char* spec : {"int8", "int4", "bf16", "fp8", "fp16", "int2", "sign"}) {
      for (const std::uint32_t count : {1U, 4096U * ranks - 5, (1U << 20) + 777}) {
        ++at;
        const DType dtype = at % 3 == 0 ? DType::bf16 : DType::f32;
        compare_with_separate(
            check, {{CodecSpec::parse(spec), dtype}, count, at % 2 == 0, at % 4 < 2 ? Kind::plain : Kind::special},
            ranks);
      }
    }
  }
}

void measure(Check& check) {
  for (const std::uint32_t ranks : {2U, 4U, 8U}) {
    for (const std::uint32_t mib : {1U, 25U, 64U}) {
      for (const bool feedback : {false, true}) {
        const WindowCall call{kInt8, mib << 18, feedback};
        const WindowNode node(ranks, window_slot_bytes(call.codec, call.count, ranks));
        const WindowRanks memory = make_window_ranks(call, ranks);
        const Stream stream;
        std::vector<Memory> frames;
        run_all(node, call, memory);
        run_separately(call, memory, frames, static_cast<cudaStream_t>(stream.get()));
        synchronize();
        constexpr int kTimes = 20;
        Stopwatch watch;
        const float by_one = watch.time(node.stream(0), [&] {
          for (int i = 0; i < kTimes; ++i) {
            for (std::uint32_t rank = 0; rank < ranks; ++rank) {
              enqueue(node, call, rank, *memory[rank]);
            }
          }
        });
        synchronize();
        const float apart = watch.time(static_cast<cudaStream_t>(stream.get()), [&] {
          for (int i = 0; i < kTimes; ++i) {
            run_separately(call, memory, frames, static_cast<cudaStream_t>(stream.get()));
          }
        });
        check.that(node.words(0).missing == 0, "the rate: a rank was waited for in vain");
        char value[32];
        std::snprintf(value, sizeof value, "%.1f", static_cast<double>(by_one) * 1000 / kTimes);
        char note[128];
        std::snprintf(note, sizeof note,
                      "all ranks on this GPU, %u blocks each; separate kernels one after another %.1f", node.blocks(),
                      static_cast<double>(apart) * 1000 / kTimes);
        check.row("one kernel, " + std::to_string(ranks) + " ranks, " + std::to_string(mib) + " MiB int8" +
                      (feedback ? ", feedback" : ""),
                  value, "us", "", "info", note);
      }
    }
  }
}

// Texts of processes, which were forked before anything of CUDA ran.
struct Board {
  std::atomic<int> arrived[64];
  char text[64][8][512];
  std::uint32_t size[64][8];
};

int run_process(Board& board, int rank, int ranks) {
  int call = 0;
  const auto all_gather = [&](const std::string& mine) {
    const int at = call++;
    std::memcpy(board.text[at][rank], mine.data(), mine.size());
    board.size[at][rank] = static_cast<std::uint32_t>(mine.size());
    ++board.arrived[at];
    while (board.arrived[at] < ranks) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::vector<std::string> texts;
    for (int other = 0; other < ranks; ++other) {
      texts.emplace_back(board.text[at][other], board.size[at][other]);
    }
    return texts;
  };
  kernels::load_window_kernels();
  kernels::WindowShape shape{static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(rank), 8, 1 << 20};
  std::string why;
  const auto windows = memory::CudaPeerWindows::open(0, kernels::window_bytes(shape), rank, all_gather, why);
  if (windows == nullptr) {
    std::fprintf(stderr, "gpu_windows: process %d: %s\n", rank, why.c_str());
    return kFailed;
  }
  void* words = nullptr;
  cuda(cudaHostAlloc(&words, sizeof(kernels::WindowWords), cudaHostAllocPortable), "cudaHostAlloc");
  kernels::WindowPlaces places{.shape = shape, .words = new (words) kernels::WindowWords, .timeout_ns = 20'000'000'000};
  for (int other = 0; other < ranks; ++other) {
    places.window[other] = reinterpret_cast<std::uint8_t*>(windows->window(other));
  }
  const Stream stream;
  kernels::check_windows(places, stream.get());
  synchronize();
  const bool good = places.words->tested == kernels::all_tested_words(shape);
  static_cast<void>(all_gather("done"));
  return good ? kPassed : kFailed;
}

// Returns whether all processes could write to each other's windows.
bool run_processes(int ranks) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* board = new (memory) Board{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() == 0) {
      alarm(60);
      try {
        _exit(run_process(*board, rank, ranks));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "gpu_windows: process %d: %s\n", rank, error.what());
        _exit(kFailed);
      }
    }
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == kPassed;
  }
  return good;
}

}  // namespace
}  // namespace gradwire::gpu

int main(int argc, char** argv) {
  using namespace gradwire::gpu;
  namespace kernels = gradwire::kernels;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);  // streams that share a connection would wait for each other
  Check check("gpu_windows", argc, argv);
  // Without a GPU the children fail, too, and this process says why.
  const bool processes = run_processes(2);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  try {
    std::printf("gpu_windows: %s\n", describe_device().c_str());
    kernels::load_kernels();
    kernels::load_window_kernels();
    check.part("windows, tested", [&] {
      check_windows_test(check, 2, 1 << 20, kernels::kMostWindowBlocks);
      check_windows_test(check, 8, 1 << 20, kernels::kMostWindowBlocks);
      check_lost_words(check, 200 * kMillisecond);
    });
    check.part("windows, bytes", [&] { check_bytes(check); });
    check.part("windows, a rank is missing", [&] {
      check_missing_rank(check, (1U << 20) + 5, 200 * kMillisecond, 60'000 * kMillisecond);
      check_late_rank(check, (1U << 20) + 5);
      check_other_call(check);
    });
    check.part("windows, rate", [&] { measure(check); });
    check.part("windows of processes", [&] { check.that(processes, "two processes write to each other's windows"); });
  } catch (const std::exception& error) {
    check.fail(error.what());
  }
  return check.finish();
}
