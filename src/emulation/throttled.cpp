// A slow link without root rights. Each rank has one virtual wire out and one in, both of the link's rate. A message
// goes to the inner transport at once, behind a stamp that says when its first byte leaves the sender's wire; receiver
// and sender then wait for the time that the bytes would take. So the wires run even while no one calls progress, and a
// message spends its serialisation time once: both wires carry it at the same time. The rate may change meanwhile, and
// several transports may share the wires; the incoming wire takes their messages in the order in which they are polled.
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "emulation/throttled.hpp"
#include "transport/decorator.hpp"

namespace gradwire {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

struct EmulatedLink::State {
  State(LinkSchedule schedule, std::optional<Time> start) : link(std::move(schedule)), origin(start) {}

  /// When the last of `bytes`, whose first is on the wire at `first`, has left it.
  [[nodiscard]] Time end_of(Time first, std::uint64_t bytes) const REQUIRES(mutex) {
    return *origin + link.end_of(first - *origin, static_cast<double>(bytes));
  }

  const LinkSchedule link;
  Mutex mutex;
  std::optional<Time> origin GUARDED_BY(mutex);  // when the schedule's time is 0; none: the link was not used yet
  Time egress_free GUARDED_BY(mutex);
  Time ingress_free GUARDED_BY(mutex);
};

namespace {

/// Travels before each message, under its tag. Times of another machine's clock have no meaning here.
struct Stamp {
  std::int64_t start_ns = 0;
  std::int64_t origin_ns = 0;  // the schedule's origin, as the sender knows it
  std::uint64_t machine = 0;
};

std::uint64_t machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return std::hash<std::string>{}(id);
}

struct Entry : transport::DecoratedOperation {
  Stamp stamp;
  bool timed = false;     // `start` is valid
  bool admitted = false;  // it is on the wire, and `due` is valid
  Time start;             // when the first byte leaves the sender
  Time due;               // when the operation is done, if the inner ones are done
};

class ThrottledTransport final : public transport::Decorator<Entry> {
 public:
  ThrottledTransport(std::shared_ptr<Transport> inner, std::shared_ptr<EmulatedLink::State> wires,
                     std::function<Time()> clock)
      : Decorator(std::move(inner)), wires_(std::move(wires)), clock_(std::move(clock)) {}

  [[nodiscard]] std::string name() const override { return "throttled(" + inner_->name() + ")"; }
  [[nodiscard]] TransportCapabilities capabilities() const override;
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }
  void post_all_reduce(Operation& operation, View data) override {
    transport::begin_all_reduce(operation, *this, data);  // throws, since there is no native sum
  }

 private:
  [[nodiscard]] Time now() const override { return clock_(); }
  bool step(Time now) override;
  [[nodiscard]] Time next_event(Time limit) const override;

  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  void read_stamp(Entry& entry, Time now);
  [[nodiscard]] std::vector<Entry*> find_coming(Time now);
  void admit(std::vector<Entry*> coming);

  std::shared_ptr<EmulatedLink::State> wires_;
  std::function<Time()> clock_;
  std::uint64_t machine_ = machine_id();
  Time last_due_;  // keeps messages in order when the latency falls
};

TransportCapabilities ThrottledTransport::capabilities() const {
  TransportCapabilities capabilities = inner_->capabilities();
  capabilities.native_all_reduce_f32 = false;
  capabilities.native_all_reduce_f64 = false;
  capabilities.all_reduce_in_call = false;
  capabilities.device_memory = false;
  capabilities.emulation = "emulated ";
  capabilities.emulation.append(wires_->link.to_string());
  const auto comma = capabilities.emulation.find(',');
  if (wires_->link.constant() && comma != std::string::npos) {
    capabilities.emulation.replace(comma, 1, ", latency ");
  }
  return capabilities;
}

void ThrottledTransport::post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) {
  transport::begin_send(operation, *this, peer, tag, data);
  Entry& entry = add(operation);
  {
    const MutexLock lock(wires_->mutex);
    if (!wires_->origin) {
      wires_->origin = now();
    }
    entry.start = std::max(now(), wires_->egress_free);
    entry.due = wires_->end_of(entry.start, data.size());
    entry.admitted = true;
    entry.stamp = {std::chrono::nanoseconds(entry.start.time_since_epoch()).count(),
                   std::chrono::nanoseconds(wires_->origin->time_since_epoch()).count(), machine_};
    wires_->egress_free = entry.due;
  }
  hand_over(operation, [&] {
    inner_->post_send(entry.side, peer, tag, std::as_bytes(std::span(&entry.stamp, 1)));
    inner_->post_send(entry.inner, peer, tag, data);
  });
}

void ThrottledTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  transport::begin_receive(operation, *this, peer, tag, data, at_most);
  Entry& entry = add(operation);
  hand_over(operation, [&] {
    inner_->post_receive(entry.side, peer, tag, std::as_writable_bytes(std::span(&entry.stamp, 1)));
    post_inner_receive(entry);
  });
}

bool ThrottledTransport::step(Time now) {
  admit(find_coming(now));
  return complete_if([&](const Entry& entry) { return entry.admitted && !entry.under_way() && entry.due <= now; });
}

void ThrottledTransport::read_stamp(Entry& entry, Time now) {
  const MutexLock lock(wires_->mutex);
  if (!wires_->origin) {
    wires_->origin = now;
  }
  entry.timed = true;
  entry.start = now;
  if (entry.stamp.machine == machine_) {
    entry.start = Time(std::chrono::nanoseconds(entry.stamp.start_ns));
    wires_->origin = std::min(*wires_->origin, Time(std::chrono::nanoseconds(entry.stamp.origin_ns)));
  }
}

/// The messages whose first byte has arrived and which are not on the incoming wire yet.
std::vector<Entry*> ThrottledTransport::find_coming(Time now) {
  std::vector<Entry*> coming;
  std::set<std::pair<int, Tag>> missing;  // channels with an earlier message that is missing; there may be hundreds
  for (const auto& entry : entries_) {
    if (entry->admitted) {
      continue;
    }
    // Messages of one tag stay in order, even where the inner transport finishes a small one before a large one.
    const std::pair channel(entry->operation->peer, entry->operation->tag);
    if (entry->under_way() || missing.contains(channel)) {
      missing.insert(channel);
      continue;
    }
    if (!entry->timed) {
      read_stamp(*entry, now);
    }
    if (entry->start <= now) {
      coming.push_back(entry.get());
    }
  }
  return coming;
}

/// Puts messages onto the incoming wire, in the order in which they left their senders.
void ThrottledTransport::admit(std::vector<Entry*> coming) {
  std::stable_sort(coming.begin(), coming.end(), [](const Entry* a, const Entry* b) { return a->start < b->start; });
  const MutexLock lock(wires_->mutex);
  for (Entry* entry : coming) {
    wires_->ingress_free = wires_->end_of(std::max(entry->start, wires_->ingress_free), entry->inner.bytes);
    const auto latency = wires_->link.link_at(wires_->ingress_free - *wires_->origin).latency;
    last_due_ = std::max(last_due_, wires_->ingress_free + latency);
    entry->due = last_due_;
    entry->admitted = true;
  }
}

Time ThrottledTransport::next_event(Time limit) const {
  for (const auto& entry : entries_) {
    if (!entry->under_way()) {
      limit = entry->admitted ? std::min(limit, entry->due) : entry->timed ? std::min(limit, entry->start) : limit;
    }
  }
  return limit;
}

}  // namespace

std::shared_ptr<Transport> transport::make_throttled(std::shared_ptr<Transport> inner, LinkSchedule link,
                                                     std::optional<Time> start, std::function<Time()> clock) {
  if (inner == nullptr) {
    throw Error(ErrorCode::invalid_argument, "make_throttled: no transport to slow down");
  }
  return make_shared_at_home<ThrottledTransport>(
      std::move(inner), std::make_shared<EmulatedLink::State>(std::move(link), start), std::move(clock));
}

EmulatedLink::EmulatedLink(LinkSchedule link, std::optional<Time> start)
    : state_(std::make_shared<State>(std::move(link), start)) {}

std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, const EmulatedLink& link) {
  if (inner == nullptr || link.state_ == nullptr) {
    throw Error(ErrorCode::invalid_argument, inner == nullptr ? "make_throttled: no transport to slow down"
                                                              : "make_throttled: the link was moved from");
  }
  return make_shared_at_home<ThrottledTransport>(std::move(inner), link.state_, [] { return Clock::now(); });
}

std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, LinkSchedule link,
                                          std::optional<Time> start) {
  return transport::make_throttled(std::move(inner), std::move(link), start, [] { return Clock::now(); });
}

std::shared_ptr<Transport> make_emulated(std::shared_ptr<Transport> inner, const std::string& link) {
  return link.empty() ? inner : make_throttled(std::move(inner), LinkSchedule::parse(link));
}

}  // namespace gradwire
