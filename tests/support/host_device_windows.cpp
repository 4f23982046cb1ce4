// Opens the windows of a device on host memory as those of a GPU are opened, with the kernels of the test.
#include <atomic>

#include "exchange/stream/window_opening.hpp"
#include "gradwire/error.hpp"
#include "tests/support/host_device.hpp"

namespace gradwire::test {

std::string HostDevice::open_windows(const memory::AllGather& all_gather, std::chrono::milliseconds timeout) {
  class OfWindows final : public exchange::WindowSource {
   public:
    explicit OfWindows(HostDevice& device) : device_(device) {}
    [[nodiscard]] exchange::WindowSeat prepare() override {
      if (!device_.in_node.broken.empty()) {
        throw Error(ErrorCode::unsupported, device_.in_node.broken);
      }
      const std::string own = "GPU " + std::to_string(device_.rank());
      return {.host = device_.in_node.host,
              .device = device_.in_node.gpu.empty() ? own : device_.in_node.gpu,
              .process = "rank" + std::to_string(device_.rank()),
              .blocks = device_.in_node.resident};
    }
    [[nodiscard]] std::atomic<std::uint32_t>& reserved() override { return *device_.in_node.reserved; }
    [[nodiscard]] kernels::WindowWords& words() override { return device_.window_words_; }
    [[nodiscard]] std::unique_ptr<memory::PeerWindows> map(std::uint64_t bytes, const memory::AllGather& all_gather,
                                                           std::string& why) override {
      const std::vector<std::string> refusals = all_gather(device_.in_node.refuses);
      for (std::size_t rank = 0; rank < refusals.size(); ++rank) {
        if (!refusals[rank].empty()) {
          why = "rank " + std::to_string(rank) + ": " + refusals[rank];
          return nullptr;
        }
      }
      if (bytes > device_.in_node.memory->bytes()) {
        throw Error(ErrorCode::internal, "the test's windows are too small");
      }
      return std::make_unique<FakeWindows>(device_.in_node.memory);
    }
    void test(const kernels::WindowPlaces& places) override {
      device_.in_node.check(places);
      std::atomic_ref(places.words->tested) -= device_.in_node.loses_a_word ? 1U : 0U;
    }

   private:
    HostDevice& device_;
  };
  if (in_node.memory == nullptr) {
    return StreamDevice::open_windows(all_gather, timeout);
  }
  ++in_node.openings;
  if (in_node.reserved == nullptr) {
    in_node.reserved = std::make_shared<std::atomic<std::uint32_t>>(0);
  }
  OfWindows source(*this);
  std::string why;
  window_calls_ = exchange::open_windows(source, rank(), all_gather, timeout, why);
  return window_calls_ != nullptr ? "" : why;
}

// The kernel's accesses to windows need no order: it waits for other ranks itself.
void HostDevice::all_reduce_windows(const kernels::WindowJob& job) {
  ++in_node.kernels;
  in_node.in_captures += capturing_ ? 1 : 0;
  const std::uint64_t end = job.encode.series.end;
  compute("one kernel inside the node",
          {{job.encode.values, end * element_bytes(job.encode.values_dtype), false},
           {job.decode.values, end * element_bytes(job.decode.values_dtype), true},
           {job.encode.residual, end * sizeof(float), true}},
          [job, this] { in_node.all_reduce(job); });
}

}  // namespace gradwire::test
