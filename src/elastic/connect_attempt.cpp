#include "elastic/connect_attempt.hpp"

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "base/mutex.hpp"
#include "base/units.hpp"

namespace gradwire::session {
namespace {

// A call of Processes::connect() on a thread of its own, which is left behind if it waits for a process that has ended.
struct ConnectAttempt {
  Mutex mutex;
  CondVar changed;
  bool over GUARDED_BY(mutex) = false;  // nobody waits for the transport any more
  bool made GUARDED_BY(mutex) = false;
  std::shared_ptr<Transport> transport GUARDED_BY(mutex);
  std::optional<Error> error GUARDED_BY(mutex);

  // Aborts the transport first, so that its destructor waits for nobody.
  void drop() REQUIRES(mutex) {
    if (transport != nullptr) {
      transport->abort(Error(ErrorCode::aborted, "the world changed", ErrorCause::world));
      transport.reset();
    }
  }
};

}  // namespace

std::shared_ptr<Transport> connect_unless_over(const std::shared_ptr<Processes>& processes,
                                               const membership::World& world, std::chrono::milliseconds timeout,
                                               const std::function<void(std::function<void()> over)>& watch) {
  const auto attempt = std::make_shared<ConnectAttempt>();
  std::thread maker([attempt, world, processes, timeout] {
    std::shared_ptr<Transport> transport;
    std::optional<Error> error;
    try {
      transport = processes->connect(world.members, world.epoch, timeout);
    } catch (...) {
      error = current_error();
    }
    const MutexLock lock(attempt->mutex);
    attempt->made = true;
    attempt->error = std::move(error);
    attempt->transport = std::move(transport);
    if (attempt->over) {
      attempt->drop();
    }
    attempt->changed.notify_all();
  });
  watch([attempt] {
    const MutexLock lock(attempt->mutex);
    attempt->over = true;
    attempt->changed.notify_all();
  });
  const MutexLock lock(attempt->mutex);
  const bool in_time = wait_awake(attempt->changed, attempt->mutex, 2 * timeout,
                                  [&]() REQUIRES(attempt->mutex) { return attempt->made || attempt->over; });
  const bool over = std::exchange(attempt->over, attempt->over || !in_time);
  const bool made = attempt->made;
  {
    const MutexUnlock meanwhile(attempt->mutex);
    made ? maker.join() : maker.detach();
  }
  if (!in_time) {
    throw Error(ErrorCode::timeout,
                "a new world of " + std::to_string(world.members.size()) + " ranks was not there within " +
                    format_duration(2 * timeout) + ": a rank gives signs of life, but does not come",
                ErrorCause::world);
  }
  if (over) {
    attempt->drop();
    return nullptr;
  }
  if (attempt->error) {
    throw Error(*attempt->error);
  }
  return attempt->transport;
}

}  // namespace gradwire::session
