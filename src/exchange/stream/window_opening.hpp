// How the ranks of a node open windows: they compare on which hosts and GPUs they are, agree on a number of blocks that
// fit there at once, map each other's memory, and test it before anything relies on it. A failure on one rank
// is a failure on all. Nothing here knows CUDA.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "exchange/stream/window_calls.hpp"
#include "kernels/device/window_job.hpp"
#include "memory/peer_windows.hpp"

namespace gradwire::exchange {

/// Why ranks of several hosts have no windows: nothing is wrong with them.
inline constexpr std::string_view kSeveralHosts = "not all ranks are on one host";

/// Where a rank's kernels run.
struct WindowSeat {
  std::string host;           // the same for all ranks of a host, and no other
  std::string device;         // the same for all ranks of that host whose kernels run on one GPU
  std::string process;        // of that host; has no space
  std::uint32_t blocks = 0;   // of its kernels over windows, those that the GPU can run at once
  std::uint32_t allowed = 0;  // that the policy allows; 0: any number
};

/// What a rank's device does for its windows. Any function may throw, which counts as a failure of this rank.
class WindowSource {
 public:
  WindowSource() = default;
  WindowSource(const WindowSource&) = delete;
  WindowSource& operator=(const WindowSource&) = delete;
  virtual ~WindowSource() = default;

  /// Loads the kernels and takes the memory that must not be taken while a kernel waits for another rank.
  [[nodiscard]] virtual WindowSeat prepare() = 0;
  /// The sum of the process's BlockReservations on the rank's GPU. It must outlive the windows.
  [[nodiscard]] virtual std::atomic<std::uint32_t>& reserved() = 0;
  /// The words that its kernels share with the host, in pinned memory, zero at first. Valid from prepare() on.
  [[nodiscard]] virtual kernels::WindowWords& words() = 0;
  /// Maps zeroed windows of that size for all ranks. Every rank calls it. Returns null on every rank if it fails on
  /// one; `why` then says why. Nothing may wait for the whole device before all ranks have left.
  [[nodiscard]] virtual std::unique_ptr<memory::PeerWindows> map(std::uint64_t bytes,
                                                                 const memory::AllGather& all_gather,
                                                                 std::string& why) = 0;
  /// Runs the test (kernels::check_windows) over these places, whose timeout is set, and waits for its end.
  virtual void test(const kernels::WindowPlaces& places) = 0;
};

/// Opens the windows of all ranks. Every rank calls it. Returns null on every rank if it fails on one; `why` then says
/// why. Kernels will wait `timeout` for a rank; 0: for ever.
[[nodiscard]] std::unique_ptr<WindowCalls> open_windows(WindowSource& source, int rank,
                                                        const memory::AllGather& all_gather,
                                                        std::chrono::milliseconds timeout, std::string& why);

}  // namespace gradwire::exchange
