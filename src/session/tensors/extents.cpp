#include "session/tensors/extents.hpp"

#include <algorithm>
#include <iterator>

namespace gradwire::session {
namespace {

std::uintptr_t begin_of(const View& view) { return reinterpret_cast<std::uintptr_t>(view.data); }
std::uintptr_t end_of(const View& view) { return begin_of(view) + view.count * element_bytes(view.dtype); }

}  // namespace

std::string Extents::name_of(std::uint32_t part) {
  switch (part) {
    case kGradient: return "the gradient";
    case kParameter: return "the parameter";
    case kScale: return "the scale";
    default: return "state " + std::to_string(part - kParameter);
  }
}

// Returns the first extent that overlaps `view`, or the end.
Extents::ByBegin::const_iterator Extents::find(const ByBegin& extents, const View& view) {
  if (view.count == 0) {
    return extents.end();
  }
  auto next = extents.upper_bound(begin_of(view));
  if (next != extents.begin() && std::prev(next)->second.end > begin_of(view)) {
    return std::prev(next);
  }
  return next != extents.end() && next->first < end_of(view) ? next : extents.end();
}

std::optional<Extents::Owner> Extents::overlapped(const View& view, std::uint32_t part) const {
  if (const auto found = find(written_, view); found != written_.end()) {
    return found->second.owner;
  }
  if (part == kScale) {
    return std::nullopt;
  }
  const auto found = find(read_, view);
  return found == read_.end() ? std::nullopt : std::optional(found->second.owner);
}

void Extents::add(const View& view, const Owner& owner) {
  if (view.count == 0) {
    return;
  }
  if (owner.part != kScale) {
    written_.emplace(begin_of(view), Extent{end_of(view), owner});
    return;
  }
  std::uintptr_t begin = begin_of(view);
  Extent merged{end_of(view), owner};
  for (auto found = find(read_, view); found != read_.end(); found = find(read_, view)) {
    begin = std::min(begin, found->first);
    merged = {std::max(merged.end, found->second.end), found->second.owner};
    read_.erase(found);
  }
  read_.emplace(begin, merged);
}

}  // namespace gradwire::session
