#include "tests/support_matrix/small_jobs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "session/device/device_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::support {
namespace {

// Throws the error of the rank that failed first, since errors that it caused on other ranks say less.
void throw_first(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (!error) {
      continue;
    }
    first = first ? first : error;
    try {
      std::rethrow_exception(error);
    } catch (const Error& own) {
      if (own.code() != ErrorCode::aborted) {
        throw;
      }
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

// Makes the policy as src/session/device/cuda_session.cpp does for sessions over a transport.
Policy policy_at(Place place, const std::string& text) {
  Policy policy = Policy::parse(text);
  policy.deterministic = policy.deterministic || place == Place::cuda || place == Place::cuda_processes;
  return policy;
}

Session session_over(Place place, const std::shared_ptr<Transport>& transport, const Policy& policy,
                     const SessionOptions& options, std::shared_ptr<test::HostDevice>& device) {
  if (!is_on_device(place)) {
    return {transport, policy, options};
  }
  device = std::make_shared<test::HostDevice>(transport);
  if (place == Place::nccl) {
    device->let_sum_in_nodes();
  }
  return session::make_session(std::make_unique<session::DeviceRunner>(device, nullptr, options), policy, options);
}

}  // namespace

Session session_over(Place place, std::shared_ptr<Processes> processes, Policy policy, const SessionOptions& options,
                     std::shared_ptr<test::HostDevice>& device) {
  if (!is_on_device(place)) {
    return {std::move(processes), std::move(policy), options};
  }
  return session::make_session(
      std::move(processes),
      [&device, options](std::shared_ptr<Transport> transport, std::uint32_t /*epoch*/) {
        device = std::make_shared<test::HostDevice>(std::move(transport));
        device->lets_pass = true;
        return std::make_unique<session::DeviceRunner>(device, nullptr, options);
      },
      std::move(policy), options);
}

Rank::Rank(int of, const std::function<Session(std::shared_ptr<test::HostDevice>&)>& make)
    : number(of),
      gradient(kCount),
      parameter(kCount, 1.0F),
      momentum(kCount),
      scale(kCount, 1.0F),
      other(kCount),
      session(make(device)) {}

void Rank::fill() { std::fill(gradient.begin(), gradient.end(), static_cast<float>(1 + 2 * number)); }

void Rank::settle() const {
  if (device != nullptr) {
    device->synchronize();
  }
}

StepOutcome Rank::step(TensorId id) {
  session.ready(id);
  StepOutcome outcome = session.finish();
  settle();
  return outcome;
}

void on_transports(const std::function<void(const std::shared_ptr<Transport>&)>& body, int ranks) {
  throw_first(test::run_ranks_catching(make_inproc_world(ranks), body));
}

void on_processes(std::vector<std::shared_ptr<Processes>> processes,
                  const std::function<void(const std::shared_ptr<Processes>&)>& body) {
  const test::Watchdog watchdog("processes of the support matrix");
  std::vector<std::exception_ptr> errors(processes.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        body(processes[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  throw_first(errors);
}

void on_session(Place place, const std::string& policy, const Body& body, const SessionOptions& options, int ranks) {
  const Policy parsed = policy_at(place, policy);
  const auto play = [&](int number, const auto& over) {
    Rank rank(number, [&](std::shared_ptr<test::HostDevice>& device) {
      return session_over(place, over, parsed, options, device);
    });
    rank.fill();
    body(rank);
  };
  if (is_over_processes(place)) {
    on_processes(make_inproc_processes(ranks), [&](const std::shared_ptr<Processes>& processes) {
      play(static_cast<int>(processes->self()), processes);
    });
  } else {
    on_transports([&](const std::shared_ptr<Transport>& transport) { play(transport->rank(), transport); }, ranks);
  }
}

std::string with(const std::string& codec, const std::string& more) {
  return "[defaults]\ncodec = \"" + codec + "\"\nsmall = \"off\"\n" + more;
}

}  // namespace gradwire::support
