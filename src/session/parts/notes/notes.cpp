#include "session/parts/notes/notes.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {
namespace {

bool is_name(std::string_view name) {
  constexpr std::size_t kLongest = 40;
  return !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), text::is_plain);
}

}  // namespace

void Notes::note(std::string_view name, double value) {
  const MutexLock lock(mutex_);
  if (const auto known = latest_.find(name); known != latest_.end()) {
    known->second = value;
    return;
  }
  if (!is_name(name)) {
    throw Error(ErrorCode::invalid_argument,
                "note: " + text::quote(text::beginning(name, 60)) +
                    " is no name; write 1 to 40 letters, digits, '_', '.' and '-', such as loss");
  }
  if (latest_.size() == kMost) {
    throw Error(ErrorCode::invalid_argument, "note: " + std::string(name) + " is one name too many; a session keeps " +
                                                 std::to_string(kMost) + ", so leave some out");
  }
  latest_.emplace(name, value);
}

void Notes::take_over(Part& before) {
  auto& earlier = static_cast<Notes&>(before);
  const MutexLock theirs(earlier.mutex_);
  const MutexLock own(mutex_);
  latest_ = earlier.latest_;
}

void Notes::add_to(observe::Snapshot& snapshot) const {
  const MutexLock lock(mutex_);
  snapshot.knowledge.notes.assign(latest_.begin(), latest_.end());
}

std::unique_ptr<Part> make_notes(const PartInputs& /*inputs*/) { return std::make_unique<Notes>(); }

}  // namespace gradwire::session
