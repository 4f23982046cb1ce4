#include "drop_in/device_calls.hpp"

#include <algorithm>

#include "base/current_error.hpp"

namespace gradwire::drop_in {
namespace {

// Runs `body`. An exception from it ends the member.
template <class Body>
bool attempt(DeviceMember& member, DeviceLibrary& library, Body&& body) {
  if (!member.failure().empty()) {
    return false;
  }
  try {
    std::forward<Body>(body)();
    return true;
  } catch (...) {
    member.fail(current_error().what());
    library.say(member.failure() + "; calls on this communicator that gradwire would handle fail from now on");
    return false;
  }
}

// Ranks exchange texts that are cut off, so each rank also prints its own reason if that is a long one.
void note_agreement(const DeviceMember& member, DeviceLibrary& library) {
  if (member.disabled().size() >= sizeof RankSettings::text) {
    library.say("rank " + std::to_string(member.rank()) + " compresses nothing: " + member.disabled());
  }
  if (member.rank() == 0 && !member.agreement().disabled_because.empty()) {
    library.say(member.agreement().warning());
  }
}

struct Routed {
  const DeviceCall* call;
  Router::Route route;
};

// Returns the calls in the order of their members' identities; the calls of one member keep their order.
std::vector<const DeviceCall*> by_identity(std::span<const DeviceCall> calls) {
  std::vector<const DeviceCall*> order;
  for (const DeviceCall& call : calls) {
    order.push_back(&call);
  }
  std::stable_sort(order.begin(), order.end(), [](const DeviceCall* a, const DeviceCall* b) {
    return a->member->identity() < b->member->identity();
  });
  return order;
}

int pass(std::vector<Routed> passed, DeviceLibrary& library) {
  if (passed.empty()) {
    return 0;
  }
  std::sort(passed.begin(), passed.end(), [](const Routed& a, const Routed& b) { return a.call < b.call; });
  const bool group = passed.size() > 1;
  int code = group ? library.start_group() : 0;
  if (code != 0) {
    return code;
  }
  for (const Routed& each : passed) {
    if (code == 0) {
      code = each.call->forward();
      each.call->member->count_passed(each.route, each.call->bytes);
    }
  }
  if (group) {
    const int end = library.end_group();
    code = code != 0 ? code : end;
  }
  return code;
}

int compress(std::span<const Routed> routed, DeviceLibrary& library) {
  int code = 0;
  for (auto first = routed.begin(); first != routed.end();) {
    DeviceMember& member = *first->call->member;
    const auto last =
        std::find_if(first, routed.end(), [&](const Routed& each) { return each.call->member.get() != &member; });
    std::vector<DeviceMember::Job> jobs;
    std::transform(first, last, std::back_inserter(jobs), [](const Routed& each) {
      return DeviceMember::Job{each.route, each.call->reduce};
    });
    if (!attempt(member, library, [&] { member.run(jobs); })) {
      code = library.failed();
    } else if (const std::uint32_t bad = member.take_bad_frames(); bad > 0) {
      library.say(std::to_string(bad) + " frame(s) arrived damaged in earlier calls and were decoded to NaN");
    }
    first = last;
  }
  return code;
}

}  // namespace

void reach_agreement(std::span<const std::shared_ptr<DeviceMember>> members, DeviceLibrary& library) {
  std::vector<DeviceMember*> fresh;
  for (const auto& member : members) {
    if (!member->agreed() && std::find(fresh.begin(), fresh.end(), member.get()) == fresh.end() &&
        attempt(*member, library, [&] { member->open(); })) {
      fresh.push_back(member.get());
    }
  }
  if (fresh.empty()) {
    return;
  }
  // Nested groups are one: it must not wait for the ranks of one communicator before those of another are asked.
  const int started = library.start_group();
  for (DeviceMember* member : fresh) {
    attempt(*member, library, [&] { member->post(); });
  }
  const int ended = started == 0 ? library.end_group() : started;
  for (DeviceMember* member : fresh) {
    const bool closed = attempt(*member, library, [&] {
      if (ended != 0) {
        throw Error(ErrorCode::transport, "the ranks cannot agree: the library answers " + std::to_string(ended),
                    ErrorCause::world);
      }
      member->close();
    });
    if (closed) {
      note_agreement(*member, library);
    }
  }
}

int issue(std::span<const DeviceCall> calls, DeviceLibrary& library) {
  std::vector<Routed> passed;
  std::vector<Routed> compressed;
  int code = 0;
  for (const DeviceCall* call : by_identity(calls)) {
    DeviceMember& member = *call->member;
    Routed routed{.call = call, .route = {}};
    if (!attempt(member, library,
                 [&] { routed.route = member.route(call->call, call->decided, call->op, call->reduce); })) {
      code = library.failed();
      continue;
    }
    const bool compress = routed.route.decision.compress && !member.dry_run();
    (compress ? compressed : passed).push_back(std::move(routed));
  }
  const int passing = pass(std::move(passed), library);
  if (passing != 0) {
    return passing;  // the library's error comes first; the group ends here, as the library's own would
  }
  const int compressing = compress(compressed, library);
  return code != 0 ? code : compressing;
}

}  // namespace gradwire::drop_in
