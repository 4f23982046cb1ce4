#include "transport/tcp/tcp_reception.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "memory/background_threads.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::minutes kLook{1};
constexpr std::chrono::minutes kBetweenWarnings{1};
constexpr std::size_t kMostAtOnce = 64;  // connections of processes that know the secret

}  // namespace

Reception::Reception(std::vector<Listener> listeners, const Greeting& own, std::uint32_t end,
                     std::shared_ptr<const ConnectionKeys> keys, Host host)
    : own_(own), end_(end), keys_(std::move(keys)), host_(std::move(host)), dialer_(own.rank, keys_) {
  dialer_.watch(wake_.readable());
  thread_ = std::thread([this, taken = std::move(listeners)]() mutable { run(std::move(taken)); });
}

Reception::~Reception() {
  close();
  thread_.join();
}

void Reception::close() noexcept {
  closed_ = true;
  wake_.set();
}

void Reception::dial(Dialer::Order order) {
  {
    const MutexLock lock(mutex_);
    orders_.push_back(std::move(order));
  }
  wake_.set();
}

// An order that cannot begin has failed, and takes no other one with it.
void Reception::begin(Dialer::Order order) {
  Dialer::Made failed{.who = order.who, .purpose = order.purpose};
  try {
    dialer_.begin(std::move(order));
  } catch (const std::exception& error) {
    log(LogLevel::warning, "a connection cannot be made anew at this moment: " + std::string(error.what()));
    host_.made(std::move(failed));
  }
}

void Reception::run(std::vector<Listener> listeners) noexcept {
  const memory::BackgroundThread background;
  Acceptor acceptor(std::move(listeners), own_,
                    {.first = 0,
                     .end = end_,
                     .at_once = kMostAtOnce,
                     .last = keys_ == nullptr ? Purpose::agent : Purpose::control},  // agents have no keys
                    keys_);
  Clock::time_point warns_at = Clock::now();
  while (!closed_) {
    try {
      wake_.clear();
      if (closed_) {  // the bytes just read may have led to close()
        return;
      }
      std::vector<Dialer::Order> orders;
      {
        const MutexLock lock(mutex_);
        orders.swap(orders_);
      }
      for (Dialer::Order& order : orders) {
        begin(std::move(order));
      }
      for (Dialer::Made& made : dialer_.move()) {
        host_.made(std::move(made));
      }
      const auto look = Clock::now() + kLook;
      if (auto accepted = acceptor.take(std::min(dialer_.deadline().value_or(look), look), dialer_.readable())) {
        host_.came(std::move(*accepted));
      }
    } catch (const std::exception& error) {  // for example no descriptor is left
      if (const auto now = Clock::now(); now >= warns_at) {
        warns_at = now + kBetweenWarnings;
        log(LogLevel::warning, std::string("nobody can join at this moment: ") + error.what());
      }
      usleep(100'000);
    }
  }
}

}  // namespace gradwire::transport::tcp
