// A slow link without root. Each rank has one virtual wire out and one in, both of the link's rate. A message is handed
// to the inner transport at once, behind a stamp that says when its first byte leaves the sender's wire; receiver and
// sender then let the time pass that the bytes would take. So the wires also run while nobody calls progress, and
// a message spends its serialisation time once: both wires carry it at the same time.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <list>
#include <memory>
#include <thread>

#include "gradwire/transport.hpp"
#include "transport/operations.hpp"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// Travels before each message, under its tag. Times of another machine's clock mean nothing here.
struct Stamp {
  std::int64_t start_ns = 0;
  std::uint64_t machine = 0;
};

std::uint64_t machine_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return std::hash<std::string>{}(id);
}

struct Entry {
  Operation* operation = nullptr;
  Operation stamp_operation;
  Operation inner;
  Stamp stamp;
  std::uint64_t order = 0;
  bool admitted = false;  // to the wire: `due` holds
  Time start;             // when the first byte leaves the sender
  Time due;               // when the operation is done, if the inner one is

  [[nodiscard]] bool arrived() const { return stamp_operation.done() && inner.done(); }
};
using Entries = std::list<std::unique_ptr<Entry>>;

class ThrottledTransport final : public Transport {
 public:
  ThrottledTransport(std::shared_ptr<Transport> inner, Link link) : inner_(std::move(inner)), link_(link) {}
  ~ThrottledTransport() override {
    for (Entries* entries : {&sends_, &receives_}) {
      while (!entries->empty()) {
        give_up(*entries, entries->begin());
      }
    }
  }

  [[nodiscard]] std::string name() const override { return "throttled(" + inner_->name() + ")"; }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] TransportCapabilities capabilities() const override;
  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override;
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override;
  void post_all_reduce(Operation& operation, View data) override {
    transport::begin_all_reduce(operation, *this, data);  // throws: there is none
  }
  bool progress(std::chrono::microseconds wait) override;
  bool cancel(Operation& operation) noexcept override;
  void abort(ErrorCode code, const std::string& message) noexcept override { inner_->abort(code, message); }
  [[nodiscard]] TransportCounters counters() const override { return counters_.read(); }

 private:
  // With nothing under way inside, an abort shows only when the inner transport is asked.
  static constexpr std::chrono::microseconds kNap{500};

  [[nodiscard]] Clock::duration wire_time(std::uint64_t bytes) const;
  Entry& add(Entries& entries, Operation& operation);
  bool give_up(Entries& entries, Entries::iterator at) noexcept;

  void admit_arrived(Time now);
  bool collect(Entries& entries, Time now);
  [[nodiscard]] Time next_event(Time limit) const;
  [[nodiscard]] bool inner_pending() const;

  std::shared_ptr<Transport> inner_;
  Link link_;
  std::uint64_t machine_ = machine_id();
  Entries sends_;     // in the order of their due times
  Entries receives_;  // in the order they were posted
  std::uint64_t next_order_ = 0;
  Time egress_free_;
  Time ingress_free_;
  transport::Counters counters_;
};

TransportCapabilities ThrottledTransport::capabilities() const {
  TransportCapabilities capabilities = inner_->capabilities();
  capabilities.native_all_reduce_f32 = false;
  capabilities.native_all_reduce_f64 = false;
  std::string text = link_.to_string();
  const auto comma = text.find(',');
  if (comma != std::string::npos) {
    text.replace(comma, 1, ", latency ");
  }
  capabilities.emulation = "emulated ";
  capabilities.emulation += text;
  return capabilities;
}

Clock::duration ThrottledTransport::wire_time(std::uint64_t bytes) const {
  if (link_.bytes_per_second <= 0) {
    return {};
  }
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / link_.bytes_per_second));
}

Entry& ThrottledTransport::add(Entries& entries, Operation& operation) {
  entries.push_back(std::make_unique<Entry>());
  Entry& entry = *entries.back();
  entry.operation = &operation;
  entry.order = next_order_++;
  operation.handle = &entry;
  return entry;
}

void ThrottledTransport::post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) {
  transport::begin_send(operation, *this, peer, tag, data);
  Entry& entry = add(sends_, operation);
  entry.start = std::max(Clock::now(), egress_free_);
  entry.due = entry.start + wire_time(data.size());
  entry.admitted = true;
  entry.stamp = {std::chrono::nanoseconds(entry.start.time_since_epoch()).count(), machine_};
  try {
    inner_->post_send(entry.stamp_operation, peer, tag, std::as_bytes(std::span(&entry.stamp, 1)));
    inner_->post_send(entry.inner, peer, tag, data);
  } catch (...) {
    cancel(operation);
    throw;
  }
  egress_free_ = entry.due;
}

void ThrottledTransport::post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) {
  transport::begin_receive(operation, *this, peer, tag, data);
  Entry& entry = add(receives_, operation);
  try {
    inner_->post_receive(entry.stamp_operation, peer, tag, std::as_writable_bytes(std::span(&entry.stamp, 1)));
    inner_->post_receive(entry.inner, peer, tag, data);
  } catch (...) {
    cancel(operation);
    throw;
  }
}

bool ThrottledTransport::progress(std::chrono::microseconds wait) {
  const Time deadline = Clock::now() + transport::bounded(wait);
  inner_->progress(std::chrono::microseconds(0));
  for (;;) {
    const Time now = Clock::now();
    admit_arrived(now);
    const bool sent = collect(sends_, now);
    const bool received = collect(receives_, now);
    if (sent || received) {
      return true;
    }
    if ((sends_.empty() && receives_.empty()) || now >= deadline) {
      return false;
    }
    const auto left = std::chrono::ceil<std::chrono::microseconds>(next_event(deadline) - now);
    if (inner_pending()) {
      inner_->progress(left);
    } else {
      std::this_thread::sleep_for(std::min(left, kNap));
      inner_->progress(std::chrono::microseconds(0));
    }
  }
}

/// Puts messages whose first byte has come onto the incoming wire, in the order in which they left their senders.
void ThrottledTransport::admit_arrived(Time now) {
  std::vector<Entry*> coming;
  std::vector<const Entry*> missing;
  for (const auto& entry : receives_) {
    if (entry->admitted) {
      continue;
    }
    // Within a tag nothing overtakes, even where the inner transport finishes a small message before a large one.
    const bool behind = std::any_of(missing.begin(), missing.end(), [&](const Entry* earlier) {
      return earlier->operation->peer == entry->operation->peer && earlier->operation->tag == entry->operation->tag;
    });
    if (behind || !entry->arrived()) {
      missing.push_back(entry.get());
      continue;
    }
    if (entry->start == Time{}) {
      const bool same_clock = entry->stamp.machine == machine_;
      entry->start = same_clock ? Time(std::chrono::nanoseconds(entry->stamp.start_ns)) : now;
    }
    if (entry->start <= now) {
      coming.push_back(entry.get());
    }
  }
  std::sort(coming.begin(), coming.end(), [](const Entry* a, const Entry* b) {
    return a->start != b->start ? a->start < b->start : a->order < b->order;
  });
  for (Entry* entry : coming) {
    ingress_free_ = std::max(entry->start, ingress_free_) + wire_time(entry->operation->bytes);
    entry->due = ingress_free_ + link_.latency;
    entry->admitted = true;
  }
}

bool ThrottledTransport::collect(Entries& entries, Time now) {
  const auto count = std::erase_if(entries, [&](const std::unique_ptr<Entry>& entry) {
    if (!entry->admitted || !entry->arrived() || entry->due > now) {
      return false;
    }
    entry->operation->state = Operation::State::done;
    entry->operation->handle = nullptr;
    counters_.count(*entry->operation, world_size());
    return true;
  });
  return count > 0;
}

Time ThrottledTransport::next_event(Time limit) const {
  for (const Entries* entries : {&sends_, &receives_}) {
    for (const auto& entry : *entries) {
      if (entry->arrived()) {
        limit = std::min(limit, entry->admitted ? entry->due : entry->start);
      }
    }
  }
  return limit;
}

bool ThrottledTransport::inner_pending() const {
  const auto under_way = [](const std::unique_ptr<Entry>& entry) { return !entry->arrived(); };
  return std::any_of(sends_.begin(), sends_.end(), under_way) ||
         std::any_of(receives_.begin(), receives_.end(), under_way);
}

bool ThrottledTransport::cancel(Operation& operation) noexcept {
  if (!operation.pending() || operation.handle == nullptr) {
    return true;
  }
  Entries& entries = operation.kind == Operation::Kind::send ? sends_ : receives_;
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const std::unique_ptr<Entry>& entry) { return entry->operation == &operation; });
  const bool over = give_up(entries, at);
  operation.handle = nullptr;
  operation.state = Operation::State::idle;
  return over;
}

/// Forgets the entry without touching its operation; leaks it where the inner transport may still write to it.
bool ThrottledTransport::give_up(Entries& entries, Entries::iterator at) noexcept {
  std::unique_ptr<Entry> entry = std::move(*at);
  entries.erase(at);
  const bool payload = inner_->cancel(entry->inner);
  const bool stamp = inner_->cancel(entry->stamp_operation);
  if (!payload || !stamp) {
    static_cast<void>(entry.release());
  }
  return payload;
}

}  // namespace

std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, Link link) {
  if (inner == nullptr) {
    throw Error(ErrorCode::invalid_argument, "make_throttled: no transport to slow down");
  }
  if (!(link.bytes_per_second >= 0) || link.latency.count() < 0) {
    throw Error(ErrorCode::invalid_argument, "make_throttled: rate and latency are 0 or more; 0 means unlimited, none");
  }
  return std::make_shared<ThrottledTransport>(std::move(inner), link);
}

}  // namespace gradwire
