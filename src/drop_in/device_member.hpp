// One rank's part in one communicator whose calls are on device memory: what a router decides is enqueued by a stream
// executor. Knows no NCCL and no CUDA: who makes one brings the device. Nothing here waits for a device but the
// agreement of the ranks, and the question for the step where a codec needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drop_in/router.hpp"
#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"

namespace gradwire::drop_in {

/// The communicator as a device that enqueues messages, for calls from any of the job's streams. Its messages and the
/// job's own calls on that communicator run in the order in which they were enqueued.
class DeviceLink {
 public:
  DeviceLink() = default;
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;
  virtual ~DeviceLink() = default;

  [[nodiscard]] virtual exchange::StreamDevice& device() noexcept = 0;
  /// The stream that follow_caller() and lead_caller() are about from now on: a handle of the library.
  virtual void set_caller(void* stream) = 0;
};

/// A sum or mean over the ranks, as its caller wrote it. Memory is the device's.
struct DeviceReduce {
  const void* send = nullptr;
  void* receive = nullptr;  // may be where `send` is; in a reduce-scatter where this rank's segment is
  std::uint64_t count = 0;  // elements that every rank receives
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  void* stream = nullptr;
};

class DeviceMember {
 public:
  /// `configuration` and `ledger` must outlive it. `process`: a number that no other process has.
  DeviceMember(const Configuration& configuration, Ledger& ledger, std::unique_ptr<DeviceLink> link,
               std::uint64_t process);
  DeviceMember(const DeviceMember&) = delete;
  DeviceMember& operator=(const DeviceMember&) = delete;
  ~DeviceMember();

  // Agreement, once: all ranks come here behind their first reduction on the communicator, whatever that is and however
  // they are configured. For several communicators of one thread at once, since other ranks may wait in all of them:
  // first open() each, then post() each, in one group of the library, then close() each, which waits for the others.
  // Any Error ends the member, but for a device that cannot run the kernels: then all ranks pass everything.
  void open();
  void post();
  void close();
  [[nodiscard]] bool agreed() const noexcept { return router_.has_value(); }
  /// Equal on all ranks of the communicator, and no other communicator's: orders the members of a process alike
  /// everywhere. After the agreement.
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] const Agreement& agreement() const noexcept { return agreement_; }
  /// Why this rank compresses nothing, in full; empty where it would. The others are told the beginning.
  [[nodiscard]] const std::string& disabled() const noexcept { return disabled_; }
  /// After the agreement: whether it alone says that nothing is compressed, or not really.
  [[nodiscard]] bool never() const noexcept;

  [[nodiscard]] bool dry_run() const noexcept { return router_->dry_run(); }

  /// As Router's, after the agreement. May wait for the other ranks.
  [[nodiscard]] Router::Route route(const Call& call, const Decision& decided, std::string_view op,
                                    const DeviceReduce& reduce);
  [[nodiscard]] CallTotals passed_totals(const Router::Route& route, std::uint64_t bytes) const {
    return router_->passed_totals(route, bytes);
  }
  void count_passed(const Router::Route& route, std::uint64_t bytes) { router_->count_passed(route, bytes, 0); }
  [[nodiscard]] Decision decide(const Call& call) const noexcept { return router_->decide(call); }
  /// Notes a call on the communicator that is not asked about; not of point-to-point ones, since all ranks must agree.
  void note_other() noexcept { ++others_; }

  struct Job {
    Router::Route route;
    DeviceReduce reduce;
  };
  /// Enqueues what was routed, in order, and counts it: after all that the jobs' streams hold, which then wait for it.
  void run(std::span<const Job> jobs);

  /// Why no call can be made right any more; empty: nothing has failed.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  void fail(const std::string& why) { failure_ = why; }
  /// Bytes of the residuals it holds on the device.
  [[nodiscard]] std::uint64_t residual_bytes() const noexcept;
  /// Frames that arrived damaged since the last time this was asked; they were decoded to NaN.
  [[nodiscard]] std::uint32_t take_bad_frames() noexcept;

 private:
  // What error feedback keeps of one call of the step.
  struct Residuals {
    exchange::DeviceRange<float> local = {};
    exchange::DeviceRange<float> owner = {};
    bool held = false;  // by some rank: alike on all, though a rank may own nothing
  };
  // Memory through which the ranks tell each other something.
  struct Exchange {
    std::byte* memory = nullptr;
    std::size_t each = 0;  // bytes of one rank
  };

  void upload(Exchange& exchange, std::span<const std::byte> mine);
  void swap(const Exchange& exchange);
  [[nodiscard]] std::vector<std::byte> download(Exchange& exchange);
  [[nodiscard]] bool all_say(std::uint64_t value);
  std::shared_ptr<const exchange::StreamExecution> enqueue(const Job& job, std::uint32_t index);
  Residuals open_residuals(std::size_t place, const exchange::ResidualUse& use);
  void make_room(exchange::DeviceRange<float>& range, const exchange::ResidualUse::Range& wanted);
  void release(std::span<const Residuals> old);
  [[nodiscard]] exchange::ChunkSize chunk_bytes() const;

  const Configuration& configuration_;
  Ledger& ledger_;
  std::unique_ptr<DeviceLink> link_;
  exchange::StreamDevice& device_;
  exchange::StreamBackend& backend_;
  exchange::StreamExecutor executor_;
  int rank_;
  int world_;
  std::uint64_t process_;
  std::uint64_t identity_ = 0;
  Agreement agreement_;
  Exchange agreeing_;
  std::optional<Router> router_;
  std::uint64_t others_ = 0;
  std::uint64_t resets_ = 0;          // of the router, when the latest residual was made
  std::vector<Residuals> residuals_;  // by order
  std::uint32_t bad_frames_ = 0;      // of the device, as last told
  std::uint32_t* step_ = nullptr;     // device memory: runs so far
  std::string disabled_;
  std::string failure_;
};

}  // namespace gradwire::drop_in
