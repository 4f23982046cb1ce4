// Defines ranks of the drop-in on devices that are host memory, and a library that only records its calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drop_in/device_calls.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "tests/exchange/inputs.hpp"
#include "tests/support/calls_for.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::drop_in {

inline Configuration configuration_with_roles(const std::string& policy) {
  Configuration configuration;
  configuration.mode = Mode::compressing;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\n" + policy));
  configuration.timeout = std::chrono::seconds(20);
  return configuration;
}

// The same where all calls count as gradients, at once.
inline Configuration configuration_of(const std::string& policy) {
  Configuration configuration = configuration_with_roles(policy);
  Policy all = configuration.planner.policy();
  all.defaults.roles = Roles::all;
  for (Policy::Rule& rule : all.rules) {
    rule.policy.roles = Roles::all;
  }
  configuration.planner = plan::CallPlanner(all);
  return configuration;
}

// Exchanges over the transport of the device, beside its messages.
class TransportPort final : public ExchangePort {
 public:
  explicit TransportPort(std::shared_ptr<Transport> transport)
      : transport_(std::move(transport)), operations_(2 * static_cast<std::size_t>(transport_->world_size())) {}
  // A message under way would write to freed memory.
  ~TransportPort() override {
    for (Operation& operation : operations_) {
      if (operation.pending()) {
        transport_->cancel(operation);
      }
    }
  }

  void open() override {
    if (refuses) {
      throw Error(ErrorCode::out_of_memory, "no memory for 1 KiB");
    }
  }
  void begin(std::span<const std::uint32_t> mine, void* /*stream*/) override {
    const auto world = static_cast<std::size_t>(transport_->world_size());
    all_.assign(world * mine.size(), 0);
    each_ = mine.size();
    const auto own = static_cast<std::size_t>(transport_->rank());
    std::copy(mine.begin(), mine.end(), all_.begin() + static_cast<std::ptrdiff_t>(own * each_));
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (rank != own) {
        transport_->post_receive(operations_[2 * rank], static_cast<int>(rank), kTagLimit - 1,
                                 std::as_writable_bytes(std::span(all_).subspan(rank * each_, each_)));
        transport_->post_send(operations_[2 * rank + 1], static_cast<int>(rank), kTagLimit - 1,
                              std::as_bytes(std::span(all_).subspan(own * each_, each_)));
      }
    }
    ++begun;
  }
  [[nodiscard]] bool arrived() override {
    transport_->progress({});
    return std::none_of(operations_.begin(), operations_.end(),
                        [](const Operation& operation) { return operation.pending(); });
  }
  void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds /*timeout*/) override {
    while (!arrived()) {
      transport_->progress(std::chrono::milliseconds(1));
    }
    for (std::size_t i = 0; i < all_.size(); ++i) {
      largest[i % each_] = i < each_ ? all_[i] : std::max(largest[i % each_], all_[i]);
    }
  }

  void meet(void* /*stream*/) override { ++met; }

  int begun = 0;
  int met = 0;
  bool refuses = false;

 private:
  std::shared_ptr<Transport> transport_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> all_;  // by rank
  std::size_t each_ = 0;
};

// A clock by which all compressed calls between two marks take the same time, and so do all calls of the library.
class ScriptedClock final : public DeviceClock {
 public:
  explicit ScriptedClock(const test::HostDevice& host) : host_(host) {}

  [[nodiscard]] Mark mark(void* /*stream*/) override {
    const std::uint64_t kernels = host_.in_node.kernels - kernels_;
    const std::uint64_t sums = host_.node_sums - sums_;
    now_ += static_cast<double>(host_.led - led_ - kernels - sums) * compressed +
            static_cast<double>(kernels) * node_kernel + static_cast<double>(sums) * tiers +
            static_cast<double>(called - called_) * library + rest;
    led_ = host_.led;
    kernels_ = host_.in_node.kernels;
    sums_ = host_.node_sums;
    called_ = called;
    times_.push_back(now_);
    ++live;
    return times_.size();
  }
  [[nodiscard]] bool reached(Mark mark) override { return mark + behind <= times_.size(); }
  [[nodiscard]] std::optional<double> seconds(Mark begin, Mark end) override {
    return knows ? std::optional(times_[end - 1] - times_[begin - 1]) : std::nullopt;
  }
  void drop(Mark mark) noexcept override { live -= mark == 0 ? 0 : 1; }
  /// The job itself takes so long.
  void pass(double seconds) { now_ += seconds; }

  double compressed = 1e-3;   // seconds of a call, beside what it takes to copy its input
  double node_kernel = 1e-3;  // of one that is made by one kernel inside the node
  double tiers = 1e-3;        // of one of one lane with a sum inside nodes
  double library = 1e-3;
  double rest = 1e-6;        // seconds before each mark
  std::uint64_t called = 0;  // calls of the library so far
  std::uint64_t behind = 0;  // marks that the device is behind its host
  bool knows = true;
  int live = 0;  // marks that were not dropped

 private:
  const test::HostDevice& host_;
  std::vector<double> times_;
  double now_ = 0;
  std::uint64_t led_ = 0;
  std::uint64_t kernels_ = 0;
  std::uint64_t sums_ = 0;
  std::uint64_t called_ = 0;
};

// A second communicator that a test lets a rank refuse. Messages of a HostDevice have one transport, which both use.
class HostOwnCommunicator final : public OwnCommunicator {
 public:
  [[nodiscard]] bool settled() const noexcept override { return uses.has_value(); }
  [[nodiscard]] Offer offer() noexcept override { return {.able = able ? 1U : 0U, .splits = 1}; }
  [[nodiscard]] bool make(std::span<const Offer> offers) noexcept override {
    offered = std::vector<Offer>(offers.begin(), offers.end());
    return makes && std::all_of(offers.begin(), offers.end(), [](const Offer& offer) { return offer.able != 0; });
  }
  void settle(bool all) noexcept override { uses = all; }
  [[nodiscard]] bool split(std::uint32_t node, int place) noexcept override {
    parts.emplace_back(node, place);
    return splits;
  }
  void settle_split(bool all) noexcept override { uses_split = all; }

  bool able = true;
  bool makes = true;
  bool splits = true;
  std::vector<Offer> offered;
  std::optional<bool> uses;
  std::vector<std::pair<std::uint32_t, int>> parts;  // node and place of this rank, as it was asked to split
  std::optional<bool> uses_split;
};

// Exchanges over the messages of the device, which run when it is waited for, in memory of its own.
class HostGather final : public RankGather {
 public:
  explicit HostGather(test::HostDevice& host) : host_(host) {}

  void put(std::span<const std::byte> mine) override {
    exchange::StreamBackend& backend = host_.backend();
    each_ = mine.size();
    all_.resize(each_ * static_cast<std::size_t>(backend.world_size()));
    std::copy(mine.begin(), mine.end(), part(backend.rank()).begin());
  }
  void post() override {
    const exchange::CurrentDevice current(host_);
    exchange::StreamBackend& backend = host_.backend();
    const int world = backend.world_size();
    backend.begin_group();
    for (int distance = 1; distance < world; ++distance) {
      const int from = (backend.rank() + world - distance) % world;
      backend.send(part(backend.rank()), (backend.rank() + distance) % world);
      backend.receive(part(from), from);
    }
    backend.end_group();
  }
  void take(std::span<std::byte> all, std::chrono::milliseconds timeout) override {
    using Queue = exchange::StreamBackend::Queue;
    const exchange::CurrentDevice current(host_);
    host_.backend().wait(Queue::compute, host_.backend().record(Queue::communication));
    host_.download(all, all_.data(), timeout);
    host_.backend().wait(Queue::communication, host_.backend().record(Queue::compute));
  }

 private:
  [[nodiscard]] std::span<std::byte> part(int rank) {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * each_, each_);
  }

  test::HostDevice& host_;
  std::vector<std::byte> all_;
  std::size_t each_ = 0;
};

class HostLink final : public DeviceLink {
 public:
  HostLink(const std::shared_ptr<Transport>& transport, std::size_t limit)
      : host(transport, limit, kSlab), port(transport), times(host), ranks(host) {}

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return host; }
  // Each stream is named twice in a run: before its jobs and after.
  void set_caller(void* stream) override {
    streams.push_back(stream);
    if (blocks && host.led < host.followed) {
      host.synchronize();
    }
  }

  // All work has one caller's stream here, which orders it.
  void begin_run(bool /*captured*/) override {}
  void end_run(bool /*captured*/) override {}
  [[nodiscard]] RankGather& gather() noexcept override { return ranks; }
  [[nodiscard]] OwnCommunicator* own_communicator() noexcept override { return has_own ? &own : nullptr; }
  [[nodiscard]] std::string host_name() const override { return on_host; }
  [[nodiscard]] ExchangePort& exchange_port() noexcept override { return port; }
  [[nodiscard]] DeviceClock& clock() noexcept override { return times; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_; }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return loans_; }

  static constexpr std::size_t kSlab = 4096;
  test::HostDevice host;
  TransportPort port;
  ScriptedClock times;
  HostGather ranks;
  HostOwnCommunicator own;
  bool has_own = false;
  std::string on_host = "host";
  std::vector<void*> streams;
  bool blocks = false;  // the host waits for the other ranks before it goes on, as in a first message between two ranks

 private:
  // Frees what is left at its end, as the source of a real device does.
  class Loans final : public memory::ArenaSource {
   public:
    explicit Loans(memory::ArenaSource& device) : device_(device) {}
    ~Loans() override {
      for (std::byte* piece : live_) {
        device_.free(piece);
      }
    }
    [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
      std::byte* piece = device_.allocate(bytes);
      if (piece != nullptr) {
        live_.insert(piece);
      }
      return piece;
    }
    void free(std::byte* piece) noexcept override {
      live_.erase(piece);
      device_.free(piece);
    }
    [[nodiscard]] std::string why() const override { return device_.why(); }

   private:
    memory::ArenaSource& device_;
    std::set<std::byte*> live_;
  };
  Loans loans_{host.memory()};
  memory::Arena lasting_{host.memory(), kSlab};
};

// One rank in one communicator.
struct Place {
  Place(const Configuration& configuration, Ledger& ledger, const std::shared_ptr<Transport>& transport,
        std::uint64_t process, std::size_t limit = ~std::size_t{0}, std::string name = {})
      : world(transport->world_size()), rank(transport->rank()) {
    auto made = std::make_unique<HostLink>(transport, limit);
    link = made.get();
    reducer = std::make_shared<DeviceReducer>(configuration, ledger, std::move(made), process, std::move(name));
  }

  int world;
  int rank;
  HostLink* link = nullptr;
  std::shared_ptr<DeviceReducer> reducer;
};

// A library that lets the devices of one rank work at the same time, in whatever order their work was enqueued.
class HostLibrary final : public DeviceLibrary {
 public:
  static constexpr int kFailed = 99;

  [[nodiscard]] int start_group() override {
    log.emplace_back("start");
    return 0;
  }
  [[nodiscard]] int end_group() override {
    log.emplace_back("end");
    std::vector<std::jthread> running;
    for (HostLink* link : links) {
      running.emplace_back([link] { link->host.synchronize(); });
    }
    return end_code;
  }
  [[nodiscard]] int failed() const noexcept override { return kFailed; }
  void say(const std::string& text) override { said.push_back(text); }

  std::vector<HostLink*> links;
  std::vector<std::string> log;
  std::vector<std::string> said;
  int end_code = 0;
};

struct CallOf {
  std::uint64_t count = 20000;  // elements that each rank receives
  Function function = Function::nccl_all_reduce;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  void* stream = nullptr;
  std::string label = "forward";
  double factor = 1;
  const void* device_factor = nullptr;
  bool captured = false;
};

inline DeviceCall call_of(const Place& place, const CallOf& what, const void* send, void* receive,
                          HostLibrary& library) {
  const std::uint64_t all = what.function == Function::nccl_reduce_scatter
                                ? what.count * static_cast<std::uint64_t>(place.world)
                                : what.count;
  const Call call{.function = what.function,
                  .dtype = what.dtype,
                  .reduction = what.reduction,
                  .count = all,
                  .world_size = place.world};
  return {.reducer = place.reducer,
          .call = call,
          .decided = place.reducer->decide(call),
          .op = what.reduction == Reduction::sum ? "sum" : "avg",
          .reduce = {.send = send,
                     .receive = receive,
                     .count = what.count,
                     .dtype = what.dtype,
                     .reduction = what.reduction,
                     .factor = what.factor,
                     .device_factor = what.device_factor,
                     .stream = what.stream,
                     .scaled = what.factor != 1 || what.device_factor != nullptr,
                     .captured = what.captured},
          .bytes = all * element_bytes(what.dtype),
          .forward =
              [&library, label = what.label, &clock = place.link->times] {
                library.log.push_back(label);
                ++clock.called;
                return 0;
              },
          // The library's sum of equal inputs, for a caller that wants to look at it; what matters is its accesses.
          .native =
              [&library, what, all, &place](const void* from, void* to) {
                library.log.emplace_back(from == to ? "library in place" : "library");
                ++place.link->times.called;
                const std::uint64_t each = element_bytes(what.dtype);
                place.link->host.call("the library's call", {{from, all * each, false}, {to, what.count * each, true}},
                                      [] {});
                return 0;
              }};
}

}  // namespace gradwire::drop_in
