// Runs small jobs at every place of C++, for the rows of the matrix. Over device memory, the device is host memory
// (tests/support/host_device.hpp): the sessions are the product's; CUDA's and NCCL's own libraries are not used.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support_matrix/matrix.hpp"

namespace gradwire::support {

inline constexpr std::size_t kCount = 5000;
inline constexpr int kRanks = 2;
// Rows of a table of 10: a row twice, and one that it does not have.
inline const std::vector<std::uint64_t> kIds{1, 1};
inline const std::vector<std::uint64_t> kOutside{10};
inline constexpr float kAlmostInfinite = std::numeric_limits<float>::max();  // bf16 rounds it to infinity

[[nodiscard]] constexpr bool is_over_processes(Place place) {
  return place == Place::processes || place == Place::cuda_processes;
}
[[nodiscard]] constexpr bool is_on_device(Place place) { return place >= Place::cuda && place <= Place::nccl; }

/// The objects of one rank. Memory is declared first, so that it outlives the session.
struct Rank {
  Rank(int of, const std::function<Session(std::shared_ptr<test::HostDevice>&)>& make);

  [[nodiscard]] View view_of(std::vector<float>& values) const { return view(values.data(), values.size()); }
  [[nodiscard]] View gradient_view() { return view_of(gradient); }
  /// Fills the gradient with 1 on rank 0 and 3 on rank 1, so that a mean is 2.
  void fill();
  /// Makes one step of `id`, and waits until the device has made it.
  StepOutcome step(TensorId id);
  void settle() const;

  int number;
  std::vector<float> gradient, parameter, momentum, scale, other;
  std::shared_ptr<test::HostDevice> device;  // null over host memory
  Session session;
};

/// Captures the work on the caller's stream until end(), or until an exception ends it.
class Capture {
 public:
  explicit Capture(test::HostDevice& device) : device_(device) { device_.begin_capture(); }
  ~Capture() {
    if (!ended_) {
      static_cast<void>(device_.end_capture());
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  [[nodiscard]] test::HostDevice::Work end() {
    ended_ = true;
    return device_.end_capture();
  }

 private:
  test::HostDevice& device_;
  bool ended_ = false;
};

using Body = std::function<void(Rank&)>;

/// Runs `body` on `ranks` ranks of a job at `place`, as threads, and throws the error of the first rank that failed by
/// itself.
void on_session(Place place, const std::string& policy, const Body& body, const SessionOptions& options = {},
                int ranks = kRanks);
/// Runs `body` for each transport of a world in this process, and throws likewise.
void on_transports(const std::function<void(const std::shared_ptr<Transport>&)>& body, int ranks = kRanks);
/// Runs `body` for each process, and throws likewise.
void on_processes(std::vector<std::shared_ptr<Processes>> processes,
                  const std::function<void(const std::shared_ptr<Processes>&)>& body);
/// Makes a session of one of those processes.
[[nodiscard]] Session session_over(Place place, std::shared_ptr<Processes> processes, Policy policy,
                                   const SessionOptions& options, std::shared_ptr<test::HostDevice>& device);

/// Returns a policy with this codec for every tensor, and with `more` lines of [defaults].
[[nodiscard]] std::string with(const std::string& codec, const std::string& more = "");

}  // namespace gradwire::support
