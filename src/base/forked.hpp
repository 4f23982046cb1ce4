// Forked children. A child has none of its parent's threads, may find its parent's locks taken for ever, and shares its
// parent's connections. So objects of the parent that are destroyed in a child (by exit() or by the job's own code)
// must not send, print, write, join or wait; they are left as they are.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace gradwire {

/// The process in which an object was made.
class Home {
 public:
  Home() noexcept : process_(::getpid()) {}
  /// Whether this process is a forked child of the one that made the object.
  [[nodiscard]] bool is_elsewhere() const noexcept { return ::getpid() != process_; }

 private:
  pid_t process_;
};

/// Leaks an object with a member `home` if this process is a forked child of the one that made it. To be called before
/// the pointer is destroyed or assigned to.
template <typename T>
void leave_in_child(std::unique_ptr<T>& object) noexcept {
  if (object != nullptr && object->home.is_elsewhere()) {
    static_cast<void>(object.release());
  }
}

/// The same as std::make_shared, but in a forked child the last owner leaves the object as it is.
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
