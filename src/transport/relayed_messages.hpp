// Messages between devices over a transport, such as MPI, by a thread of the host. A stream that reaches a group tells
// the thread and waits; the thread exchanges the messages and lets the stream go on. If the transport takes device
// memory, messages go from and to it; otherwise the stream copies them to and from pinned memory. The device's other
// streams work on meanwhile, and no function of the host runs on a stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/awake_time.hpp"
#include "base/mutex.hpp"
#include "gradwire/transport.hpp"
#include "transport/device_messages.hpp"
#include "transport/stream_port.hpp"

namespace gradwire::transport {

class RelayedMessages final : public DeviceMessages {
 public:
  enum class Path : std::uint8_t { staged, direct };

  /// Only this object uses `transport` from now on, on a thread of its own. Error(unsupported) where a transport is
  /// bound to the thread that made it, and for `direct` where it takes host memory only. Ranks may have different
  /// paths.
  RelayedMessages(std::shared_ptr<Transport> transport, std::unique_ptr<StreamPort> port, Path path,
                  std::chrono::milliseconds timeout);
  /// No stream may be waiting any more, except after an error.
  ~RelayedMessages() override;

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] int rank() const noexcept override { return transport_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return transport_->world_size(); }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  /// Always throws Error(unsupported): two_shot over exact values moves fewer bytes through the host.
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  void end_group() override;
  void poll() override;
  void abort(const Error& error) noexcept override;
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return port_->pinned_bytes(); }

 private:
  using Number = StreamPort::Number;
  struct Transfer {
    bool sends;
    std::byte* device;   // this rank's device memory
    std::byte* staging;  // null: direct
    std::uint64_t bytes;
    int peer;
    [[nodiscard]] std::byte* memory() const noexcept { return staging != nullptr ? staging : device; }
  };
  struct Group {
    Number number;
    std::vector<Transfer> parts;
  };

  void add(bool sends, std::byte* device, std::uint64_t bytes, int peer, void* stream);
  void release_staging();
  void throw_failure();
  // These run on the thread of the host.
  void run() noexcept;
  [[nodiscard]] bool take(Group& group);
  [[nodiscard]] bool wait_for_stream(Number number);
  void exchange(const Group& group);
  void let_go(Number number);
  void wait_for(const Operation& operation, AwakeTime& idle);
  void fail(const Error& error) noexcept;

  std::shared_ptr<Transport> transport_;
  std::unique_ptr<StreamPort> port_;
  Path path_;
  std::chrono::milliseconds timeout_;
  std::vector<Transfer> group_;  // the group that is being recorded
  void* stream_ = nullptr;
  std::deque<Group> staged_;                      // groups whose staging memory the stream may still use, oldest first
  std::map<std::pair<int, bool>, Tag> next_tag_;  // by peer and direction; only the thread uses it

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Group> waiting_ GUARDED_BY(mutex_);  // groups for the thread
  Number enqueued_ GUARDED_BY(mutex_);            // number of the last group
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  std::vector<std::byte*> leaked_ GUARDED_BY(mutex_);  // staging memory that the transport may still use
  std::thread thread_;
};

}  // namespace gradwire::transport
