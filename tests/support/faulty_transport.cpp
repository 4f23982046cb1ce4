#include "tests/support/faulty_transport.hpp"

#include <string>

#include "transport/decorator.hpp"

namespace gradwire::transport {
namespace {

using Time = std::chrono::steady_clock::time_point;

struct Entry : DecoratedOperation {
  bool held = false;  // not handed over before `release`
  Time release;
  std::vector<std::byte> changed;  // the bytes to send instead
};

class FaultyTransport final : public Decorator<Entry> {
 public:
  FaultyTransport(std::shared_ptr<Transport> inner, std::vector<Fault> faults)
      : Decorator(std::move(inner)), faults_(std::move(faults)) {}

  [[nodiscard]] std::string name() const override { return "faulty(" + inner_->name() + ")"; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    TransportCapabilities capabilities = inner_->capabilities();
    capabilities.native_all_reduce_f32 = false;
    capabilities.native_all_reduce_f64 = false;
    capabilities.all_reduce_in_call = false;
    capabilities.device_memory = false;
    return capabilities;
  }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }
  void post_all_reduce(Operation& operation, View data) override {
    begin_all_reduce(operation, *this, data);  // this throws, as there is no such call
  }
  // A dead rank does not answer.
  bool progress(std::chrono::microseconds wait) override {
    if (!killed_) {
      return Decorator::progress(wait);
    }
    std::this_thread::sleep_for(std::min<std::chrono::microseconds>(bounded(wait), std::chrono::milliseconds(1)));
    Operation nothing;  // posting throws once other ranks have given up, which ends this rank's thread
    inner_->post_receive(nothing, (rank() + 1) % world_size(), kTagLimit - 1, {});
    inner_->cancel(nothing);
    return false;
  }
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override {
    return killed_ ? std::vector<PeerState>{} : Decorator::ask(limit);
  }
  void abort(const Error& error) noexcept override {
    if (!killed_) {
      Decorator::abort(error);
    }
  }

 private:
  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  bool step(Time now) override;
  [[nodiscard]] Time next_event(Time limit) const override;

  [[nodiscard]] const Fault* strike(int peer, Tag tag);
  void apply(const Fault& fault, Entry& entry);
  void start(Entry& entry);
  [[nodiscard]] bool is_behind_held(const Entry& entry) const;

  std::vector<Fault> faults_;
  std::atomic<bool> killed_ = false;
};

/// Returns the fault of this send, if any.
const Fault* FaultyTransport::strike(int peer, Tag tag) {
  const Fault* found = nullptr;
  for (Fault& fault : faults_) {
    const bool matches =
        (fault.rank < 0 || fault.rank == rank()) && fault.peer.value_or(peer) == peer && fault.tag.value_or(tag) == tag;
    // The count goes past zero, so that the fault strikes once.
    if (matches && fault.nth-- == 0) {
      found = &fault;
    }
  }
  return found;
}

void FaultyTransport::apply(const Fault& fault, Entry& entry) {
  const Operation& operation = *entry.operation;
  switch (fault.kind) {
    case Fault::Kind::drop: break;
    case Fault::Kind::delay:
      entry.held = true;
      entry.release = Clock::now() + fault.delay;
      break;
    case Fault::Kind::corrupt:
      entry.changed.assign(operation.data, operation.data + operation.bytes);
      if (!entry.changed.empty()) {
        entry.changed[fault.offset % entry.changed.size()] ^= std::byte{0xff};
      }
      start(entry);
      break;
    case Fault::Kind::duplicate:
      start(entry);
      inner_->post_send(entry.side, operation.peer, operation.tag, {operation.data, operation.bytes});
      break;
    case Fault::Kind::kill: killed_ = true; break;
    case Fault::Kind::fail:
      throw Error(ErrorCode::transport, "injected fault: rank " + std::to_string(rank()) + " cannot send to rank " +
                                            std::to_string(operation.peer) + ", tag " + std::to_string(operation.tag));
  }
}

void FaultyTransport::start(Entry& entry) {
  const Operation& operation = *entry.operation;
  const std::byte* data = entry.changed.empty() ? operation.data : entry.changed.data();
  entry.held = false;
  inner_->post_send(entry.inner, operation.peer, operation.tag, {data, operation.bytes});
}

bool FaultyTransport::is_behind_held(const Entry& entry) const {
  for (const auto& earlier : entries_) {
    if (earlier.get() == &entry) {
      return false;
    }
    if (earlier->held && earlier->operation->peer == entry.operation->peer &&
        earlier->operation->tag == entry.operation->tag) {
      return true;
    }
  }
  return false;
}

void FaultyTransport::post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) {
  begin_send(operation, *this, peer, tag, data);
  Entry& entry = add(operation);
  const Fault* fault = killed_ ? nullptr : strike(peer, tag);
  hand_over(operation, [&] {
    if (fault != nullptr) {
      apply(*fault, entry);
    } else if (is_behind_held(entry)) {
      entry.held = true;
    } else if (!killed_) {
      start(entry);
    }
  });
}

void FaultyTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  begin_receive(operation, *this, peer, tag, data, at_most);
  Entry& entry = add(operation);
  if (!killed_) {
    hand_over(operation, [&] { post_inner_receive(entry); });
  }
}

bool FaultyTransport::step(Time now) {
  if (killed_) {
    return false;
  }
  for (const auto& entry : entries_) {
    if (entry->held && entry->release <= now && !is_behind_held(*entry)) {
      start(*entry);
    }
  }
  return complete_if([](const Entry& entry) { return !entry.held && !entry.under_way(); });
}

Time FaultyTransport::next_event(Time limit) const {
  for (const auto& entry : entries_) {
    if (entry->held && !is_behind_held(*entry)) {
      limit = std::min(limit, entry->release);
    }
  }
  return limit;
}

}  // namespace

std::shared_ptr<Transport> make_faulty(std::shared_ptr<Transport> inner, std::vector<Fault> faults) {
  if (inner == nullptr) {
    throw Error(ErrorCode::invalid_argument, "make_faulty: no transport to disturb");
  }
  return std::make_shared<FaultyTransport>(std::move(inner), std::move(faults));
}

}  // namespace gradwire::transport
