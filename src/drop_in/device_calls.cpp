#include "drop_in/device_calls.hpp"

#include <algorithm>

#include "base/current_error.hpp"

namespace gradwire::drop_in {
namespace {

// Runs `body`. An exception from it ends the reducer.
template <class Body>
bool attempt(DeviceReducer& reducer, DeviceLibrary& library, Body&& body) {
  if (!reducer.failure().empty()) {
    return false;
  }
  try {
    std::forward<Body>(body)();
    return true;
  } catch (...) {
    reducer.fail(current_error().what());
    library.say(reducer.failure() + "; calls on this communicator that gradwire would handle fail from now on");
    return false;
  }
}

// Ranks exchange texts that are cut off, so each rank also prints its own reason if that is a long one.
void note_agreement(const DeviceReducer& reducer, DeviceLibrary& library) {
  if (reducer.disabled().size() >= sizeof RankSettings::text) {
    library.say("rank " + std::to_string(reducer.rank()) + " compresses nothing: " + reducer.disabled());
  }
  if (reducer.rank() == 0 && !reducer.agreement().disabled_because.empty()) {
    library.say(reducer.agreement().warning());
  }
}

struct Routed {
  const DeviceCall* call;
  Router::Route route;
};

// Returns the calls in the order of their reducers' identities; the calls of one reducer keep their order.
std::vector<const DeviceCall*> by_identity(std::span<const DeviceCall> calls) {
  std::vector<const DeviceCall*> order;
  for (const DeviceCall& call : calls) {
    order.push_back(&call);
  }
  std::stable_sort(order.begin(), order.end(), [](const DeviceCall* a, const DeviceCall* b) {
    return a->reducer->identity() < b->reducer->identity();
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
      each.call->reducer->count_passed(each.route, each.call->bytes);
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
    DeviceReducer& reducer = *first->call->reducer;
    const bool captured = first->call->reduce.captured;  // what is captured runs apart from what is not
    const auto last = std::find_if(first, routed.end(), [&](const Routed& each) {
      return each.call->reducer.get() != &reducer || each.call->reduce.captured != captured;
    });
    std::vector<DeviceReducer::Job> jobs;
    std::transform(first, last, std::back_inserter(jobs), [](const Routed& each) {
      return DeviceReducer::Job{each.route, each.call->reduce};
    });
    if (!attempt(reducer, library, [&] { reducer.run(jobs); })) {
      code = library.failed();
    } else if (const std::uint32_t bad = reducer.take_bad_frames(); bad > 0) {
      library.say(std::to_string(bad) + " frame(s) arrived damaged in earlier calls and were decoded to NaN");
    }
    first = last;
  }
  return code;
}

int run_trials(std::span<const Routed> routed, DeviceLibrary& library) {
  int code = 0;
  for (const Routed& each : routed) {
    DeviceReducer& reducer = *each.call->reducer;
    int made = 0;
    if (!attempt(reducer, library, [&] {
          made = reducer.run_trial({each.route, each.call->reduce}, each.call->bytes, each.call->native);
        })) {
      made = library.failed();
    }
    code = code != 0 ? code : made;
  }
  return code;
}

// What the ranks of a communicator have to agree on is enqueued behind all its calls here, on the stream of one.
int end_calls(std::span<const DeviceCall* const> calls, DeviceLibrary& library) {
  int code = 0;
  DeviceReducer* ended = nullptr;
  for (const DeviceCall* call : calls) {
    DeviceReducer* reducer = call->reducer.get();
    if (call->reduce.captured || reducer == ended) {
      continue;
    }
    ended = reducer;
    if (reducer->failure().empty() && !attempt(*reducer, library, [&] { reducer->end_call(call->reduce.stream); })) {
      code = library.failed();
    }
  }
  return code;
}

}  // namespace

void reach_agreement(std::span<const std::shared_ptr<DeviceReducer>> reducers, DeviceLibrary& library) {
  std::vector<DeviceReducer*> fresh;
  for (const auto& reducer : reducers) {
    if (!reducer->agreed() && std::find(fresh.begin(), fresh.end(), reducer.get()) == fresh.end() &&
        attempt(*reducer, library, [&] { reducer->open(); })) {
      fresh.push_back(reducer.get());
    }
  }
  if (fresh.empty()) {
    return;
  }
  // Nested groups are one: it must not wait for the ranks of one communicator before those of another are asked.
  const int started = library.start_group();
  for (DeviceReducer* reducer : fresh) {
    attempt(*reducer, library, [&] { reducer->post(); });
  }
  const int ended = started == 0 ? library.end_group() : started;
  for (DeviceReducer* reducer : fresh) {
    attempt(*reducer, library, [&] {
      if (ended != 0) {
        throw Error(ErrorCode::transport, "the ranks cannot agree: the library answers " + std::to_string(ended),
                    ErrorCause::world);
      }
      reducer->close();
      note_agreement(*reducer, library);
    });
  }
  std::erase_if(fresh, [](const DeviceReducer* reducer) { return !reducer->failure().empty(); });
  std::sort(fresh.begin(), fresh.end(),
            [](const DeviceReducer* a, const DeviceReducer* b) { return a->identity() < b->identity(); });
  for (DeviceReducer* reducer : fresh) {
    attempt(*reducer, library, [&] { reducer->follow(); });
  }
}

int issue(std::span<const DeviceCall> calls, DeviceLibrary& library) {
  std::vector<Routed> passed;
  std::vector<Routed> compressed;
  std::vector<Routed> tried;
  int code = 0;
  const std::vector<const DeviceCall*> ordered = by_identity(calls);
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    const DeviceCall* const call = ordered[i];
    DeviceReducer& reducer = *call->reducer;
    Routed routed{.call = call, .route = {}};
    DeviceReduce reduce = call->reduce;
    reduce.grouped = (i > 0 && ordered[i - 1]->reducer == call->reducer) ||
                     (i + 1 < ordered.size() && ordered[i + 1]->reducer == call->reducer);
    const bool made = attempt(reducer, library, [&] {
      routed.route = reduce.captured ? reducer.route_captured(call->call, call->op, reduce)
                                     : reducer.route(call->call, call->decided, call->op, reduce);
    });
    if (!made) {
      code = library.failed();
      continue;
    }
    for (const std::string& line : reducer.take_lines()) {
      library.say(line);
    }
    const bool compress = routed.route.decision.compress && !reducer.dry_run();
    (routed.route.trial ? tried : compress ? compressed : passed).push_back(std::move(routed));
  }
  const int passing = pass(std::move(passed), library);
  if (passing != 0) {
    return passing;  // the library's error comes first; the group ends here, as the library's own would
  }
  for (const int made : {compress(compressed, library), run_trials(tried, library), end_calls(ordered, library)}) {
    code = code != 0 ? code : made;
  }
  return code;
}

}  // namespace gradwire::drop_in
