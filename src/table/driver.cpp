#include "table/driver.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "memory/background_threads.hpp"
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "observe/watching.hpp"
#include "transport/foreground.hpp"
#include "transport/operations.hpp"
#include "transport/shares_process.hpp"
#include "transport/silence.hpp"

namespace gradwire::table {
namespace {

// How long the thread that moves messages waits for one before it looks for new messages to send.
constexpr std::chrono::microseconds kSlice{100};
// How long it waits while rows are being read from a file.
constexpr std::chrono::microseconds kReadingSlice{20};
constexpr std::uint64_t kMostUnsentBytes = 16ULL << 20;
constexpr std::uint64_t kMostUnsentMessages = 4096;  // each one is looked at whenever messages move
// In bytes, divided among all peers; each peer may always have one message. It is small because a step may soon have
// messages to send.
constexpr std::uint64_t kMostWritesUnderWay = 64 << 10;
constexpr std::chrono::seconds kLongestHold{1};  // then writes go beside a step: other ranks may wait for them

}  // namespace

Driver::Driver(std::shared_ptr<Transport> transport, const TableOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      source_(observe::add_source({.kind = observe::Source::Kind::table,
                                   .rank = transport_->rank(),
                                   .world_size = transport_->world_size(),
                                   .shares_process = transport::shares_process(*transport_)})),
      threading_(more_restricted(
          options.threading, transport_->capabilities().any_thread ? Threading::background : Threading::main_thread)),
      service_(transport_->rank(), transport_->world_size(), options),
      mailbox_(transport_, {.rows = options.rows, .width = options.width}) {
  observe::begin_watching();
  if (threading_ == Threading::background && transport_->world_size() > 1) {
    thread_ = std::thread([this] {
      const memory::BackgroundThread background;
      run();
    });
  }
}

Driver::~Driver() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  callers_done_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Driver::check_thread(const char* call) const {
  if (threading_ == Threading::main_thread && std::this_thread::get_id() != maker_) {
    throw Error(ErrorCode::invalid_argument,
                "table \"" + options_.name + "\": " + call +
                    ": with this MPI thread level only the thread that made the table may call it; use "
                    "MPI_Init_thread with MPI_THREAD_MULTIPLE");
  }
}

void Driver::throw_if_failed() const {
  if (failure_) {
    throw Error(*failure_);
  }
}

bool Driver::failed() const {
  const MutexLock lock(mutex_);
  return failure_.has_value();
}

void Driver::abort(const Error& error) noexcept {
  transport_->abort(error);
  observe::record({.begin = observe::ticks(),
                   .bytes = static_cast<std::uint64_t>(error.code()),
                   .source = source_,
                   .kind = observe::EventKind::error});
  const MutexLock lock(mutex_);
  if (!failure_) {
    failure_ = error;
  }
}

void Driver::end_if_broken() noexcept {
  std::optional<Error> broken;
  {
    const MutexLock lock(mutex_);
    if (!failure_) {
      broken = service_.broken();
    }
  }
  if (broken) {
    abort(*broken);
  }
}

void Driver::post_outbox() {
  std::vector<Service::Envelope> outbox;
  {
    const MutexLock lock(mutex_);
    outbox = service_.take_outbox();
  }
  for (Service::Envelope& envelope : outbox) {
    mailbox_.send(envelope.peer, std::move(envelope.message));
  }
  mailbox_.post_waiting(most_writes_under_way());
}

/// Returns how many bytes of writes to one peer may be under way.
std::uint64_t Driver::most_writes_under_way() {
  if (threading_ != Threading::background) {  // the caller may come too rarely for messages to wait
    return std::numeric_limits<std::uint64_t>::max();
  }
  const auto now = std::chrono::steady_clock::now();
  if (!transport::foreground_sends(now)) {
    held_since_ = now;
  } else if (now - held_since_ < std::min<std::chrono::milliseconds>(kLongestHold, options_.timeout / 4)) {
    return 0;
  }
  return kMostWritesUnderWay / static_cast<std::uint64_t>(std::max(1, transport_->world_size() - 1));
}

/// Returns whether rows are on their way from a file.
bool Driver::advance_reads() {
  const MutexLock lock(mutex_);
  if (service_.reads()) {
    service_.advance_reads();
  }
  return service_.reads();
}

/// Any error here ends the table on every rank.
void Driver::step(std::chrono::microseconds wait) {
  try {
    if (advance_reads()) {
      wait = std::min(wait, kReadingSlice);
    }
    post_outbox();
    mailbox_.progress(wait, [this](int peer, const TableMessage& message) {
      const MutexLock lock(mutex_);
      service_.take(peer, message);
    });
    static_cast<void>(advance_reads());
    post_outbox();
  } catch (...) {
    const Error error = current_error();
    abort(error);
    throw;
  }
}

void Driver::flush() {
  if (wire_.try_lock()) {
    const MutexLock wire(wire_, std::adopt_lock);
    step(std::chrono::microseconds(0));
  }
}

void Driver::run() noexcept {
  try {
    for (;;) {
      {
        const MutexLock lock(mutex_);
        callers_done_.wait(mutex_, [this]() REQUIRES(mutex_) { return waiting_ == 0 || stopping_; });
        if (stopping_ || failure_) {
          return;
        }
      }
      const MutexLock wire(wire_);
      step(kSlice);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): step() has kept it for the next call
  }
}

void Driver::give_up(const std::string& waited) {
  try {
    std::string silence;
    {
      const MutexLock wire(wire_);
      silence = transport::describe_silence(*transport_, options_.timeout);
    }
    throw Error(ErrorCode::timeout,
                waited + (silence.empty() ? "" : "; " + silence) + "; has a rank died, or does it not call the table?",
                ErrorCause::world);
  } catch (...) {  // the timeout, or an error that another rank has reported meanwhile
    const Error error = current_error();
    abort(error);
    throw Error(error);
  }
}

void Driver::wait(const char* call, const std::function<bool(const Service&)>& done,
                  const std::function<std::string(const Service&)>& whom) {
  check_thread(call);
  AwakeTime time;
  const MutexLock lock(mutex_);
  ++waiting_;
  const auto leave = [this]() REQUIRES(mutex_) {
    --waiting_;
    callers_done_.notify_all();
  };
  try {
    for (;;) {
      throw_if_failed();
      if (done(service_)) {
        break;
      }
      if (time.waited() >= options_.timeout) {
        const std::string waited = "table \"" + options_.name + "\": " + call + " waited " +
                                   std::to_string(options_.timeout.count()) + " ms " + whom(service_);
        const MutexUnlock meanwhile(mutex_);
        give_up(waited);
      }
      const MutexUnlock meanwhile(mutex_);
      const MutexLock wire(wire_);
      step(kSlice);
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void Driver::throttle(const char* call) {
  const auto few = [this](const Service& service) {
    return unsent_bytes(service) <= kMostUnsentBytes &&
           service.outgoing().messages - mailbox_.completed_messages() <= kMostUnsentMessages;
  };
  if (with(call, few)) {
    flush();
    return;
  }
  wait(call, few, [this](const Service& service) { return describe_unsent(service); });
}

std::string Driver::describe_unsent(const Service& service) const {
  return "for " + std::to_string(unsent_bytes(service)) + " bytes in " +
         std::to_string(service.outgoing().messages - mailbox_.completed_messages()) + " messages to leave";
}

std::vector<std::string> Driver::exchange(const char* call, const std::string& mine, Topic topic) {
  // This does not wait for messages that this rank sends after its own text, such as pushes of other threads: these may
  // never end.
  std::uint64_t last = 0;
  const Service::Exchange number = with(call, [&](Service& service) {
    const Service::Exchange started = service.start_exchange(topic, mine);
    last = service.outgoing().messages;
    return started;
  });
  wait(
      call,
      [&](const Service& service) {
        return service.missing_in_exchange(number).empty() && mailbox_.completed_in_order() >= last;
      },
      [&](const Service& service) {
        const std::string missing = service.missing_in_exchange(number);
        return missing.empty() ? describe_unsent(service) : "for rank " + missing;
      });
  return with(call, [&](Service& service) { return service.take_exchanged(number); });
}

}  // namespace gradwire::table
