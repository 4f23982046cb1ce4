// Children that a process forks off. A child has none of its parent's threads, may find its parent's locks taken for
// ever, and shares its parent's connections: objects of the parent that are destroyed there (by exit() or by the job's
// own code) must send, print, write, join and wait for nothing. So they are left as they are.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace gradwire {

/// The process that an object was made in.
class Home {
 public:
  Home() noexcept : process_(::getpid()) {}
  /// Whether this process forked off from the one that made the object.
  [[nodiscard]] bool is_elsewhere() const noexcept { return ::getpid() != process_; }

 private:
  pid_t process_;
};

/// Gives up an object with a member `home` where this process forked off from the one that made it. Before the pointer
/// is destroyed or assigned to.
template <typename T>
void leave_in_child(std::unique_ptr<T>& object) noexcept {
  if (object != nullptr && object->home.is_elsewhere()) {
    static_cast<void>(object.release());
  }
}

/// As std::make_shared, but in a child that forked off the last owner leaves the object as it is.
template <typename T, typename... Arguments>
[[nodiscard]] std::shared_ptr<T> make_shared_at_home(Arguments&&... arguments) {
  const auto end = [home = Home()](T* object) {
    if (!home.is_elsewhere()) {
      delete object;
    }
  };
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), end);
}

}  // namespace gradwire
