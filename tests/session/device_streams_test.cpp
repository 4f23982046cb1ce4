// Tests which of these wait for which in sessions over device memory: the host, the caller's stream and the session's
// streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "device_model.hpp"

namespace gradwire::test {
namespace {

TEST(DeviceSession, NothingBlocksTheHost) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    trainer.step(0);
    fill(trainer.gradients, transport->rank(), 1);
    const std::string before = content(trainer.gradients);
    const std::uint64_t followed = trainer.device->followed;
    std::vector<Ticket> tickets;
    for (const TypedGradient& gradient : trainer.gradients) {
      tickets.push_back(trainer.session.ready(gradient.id));
    }
    EXPECT_GT(trainer.device->waiting(), 0U) << "buckets start as soon as they are ready";
    EXPECT_GT(trainer.device->followed, followed) << "work must follow the earlier work on the caller's stream";
    EXPECT_FALSE(trainer.session.done(tickets.back()));
    const std::uint64_t led = trainer.device->led;
    trainer.session.finish();
    EXPECT_EQ(trainer.device->led, led + 1) << "the caller's stream must wait for the results";
    EXPECT_TRUE(content(trainer.gradients) == before) << "finish() waited for the device";
    EXPECT_FALSE(trainer.session.done(tickets.front()));
    trainer.session.wait(tickets.front());
    EXPECT_TRUE(trainer.session.done(tickets.front()));
    trainer.device->synchronize();
    EXPECT_TRUE(trainer.session.done(tickets.back()));
    EXPECT_FALSE(content(trainer.gradients) == before);
    EXPECT_EQ(trainer.session.step(), 2U);
  });
}

// A kernel on the caller's stream that ends on request.
class SlowKernel {
 public:
  explicit SlowKernel(HostDevice& device) {
    device.call("a slow kernel", {}, [this] {
      runs_.set_value();
      ends_.get_future().wait();
    });
  }
  void wait_until_it_runs() { runs_.get_future().wait(); }
  void end() { ends_.set_value(); }

 private:
  std::promise<void> runs_;
  std::promise<void> ends_;
};

// done() must not block, whatever another thread waits for. These tests fail, by the watchdog, if done() takes the lock
// of the communicating thread, or if that thread holds the other lock while it waits.
TEST(DeviceSession, AskingForATicketNeverBlocks) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    SlowKernel slow(*trainer.device);
    Ticket ticket;
    for (const TypedGradient& gradient : trainer.gradients) {
      ticket = trainer.session.ready(gradient.id);
    }
    trainer.session.finish();
    std::thread other([&] { trainer.session.wait(ticket); });
    slow.wait_until_it_runs();
    EXPECT_FALSE(trainer.session.done(ticket));
    slow.end();
    other.join();
    EXPECT_TRUE(trainer.session.done(ticket));
  });
}

TEST(DeviceSession, AskingForATicketDoesNotWaitForReplays) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    trainer.session.reserve();
    trainer.device->begin_capture();
    for (const TypedGradient& gradient : trainer.gradients) {
      trainer.session.ready(gradient.id);
    }
    trainer.session.finish();
    const HostDevice::Work graph = trainer.device->end_capture();
    Ticket ticket;
    for (const TypedGradient& gradient : trainer.gradients) {
      ticket = trainer.session.ready(gradient.id);
    }
    trainer.session.finish();
    SlowKernel slow(*trainer.device);
    trainer.device->replay(graph);
    std::thread other([&] { EXPECT_EQ(trainer.session.step(), 2U); });
    slow.wait_until_it_runs();
    static_cast<void>(trainer.session.done(ticket));
    slow.end();
    other.join();
    EXPECT_TRUE(trainer.session.done(ticket));
  });
}

// The calls that a job makes around a session. None of them waits for the device.
void plain_steps(Trainer& trainer) {
  for (const std::uint64_t step : {0, 1}) {
    trainer.enqueue_step(step);
  }
}

void broadcasts(Trainer& trainer) {
  std::vector<View> values;
  for (TypedGradient& gradient : trainer.gradients) {
    values.push_back(gradient.view());
  }
  trainer.backward(0);
  trainer.session.broadcast(values, 1);
  trainer.optimise();
}

void replays(Trainer& trainer) {
  trainer.enqueue_step(0);
  trainer.session.reserve();
  trainer.device->begin_capture();
  trainer.backward(1);
  trainer.ready_all();
  trainer.session.finish();
  trainer.optimise();
  const HostDevice::Work graph = trainer.device->end_capture();
  trainer.device->replay(graph);
  trainer.session.set_loss_scale(2);
  trainer.device->replay(graph);
  trainer.enqueue_step(3);
  trainer.device->replay(graph);
  static_cast<void>(trainer.saved());
}

void reserves(Trainer& trainer) {
  trainer.session.reserve();
  trainer.device->begin_capture();
  trainer.ready_all();
  trainer.session.finish();
  trainer.device->replay(trainer.device->end_capture());
}

void loads(Trainer& trainer) {
  std::stringstream state;
  {
    Trainer before(trainer.transport, true, uniform("topk(5%)+int8"));
    before.step(0);
    before.session.save(state);
  }
  trainer.session.load(state);
  reserves(trainer);
}

// Sets `joins` to the number of joins that rank 1 makes, and returns its error: without one join, two queues use the
// same memory in no fixed order.
std::string error_without(std::uint64_t join, void (*scenario)(Trainer&), Nonfinite nonfinite, std::uint64_t& joins) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("topk(5%)+int8"), {.nonfinite = nonfinite});
    if (transport->rank() == 1) {
      trainer.device->drop_join = join;
    }
    scenario(trainer);
    trainer.device->synchronize();
    if (transport->rank() == 1) {
      joins = trainer.device->followed + trainer.device->led;
    }
  });
  try {
    if (errors[1]) {
      std::rethrow_exception(errors[1]);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceSession, EveryJoinWithTheCallersStreamIsNeeded) {
  struct Scenario {
    const char* name;
    void (*run)(Trainer&);
    Nonfinite nonfinite = Nonfinite::propagate;
    std::set<std::uint64_t> covered = {};  // joins that earlier ones make superfluous in this job
  };
  const Scenario scenarios[] = {
      {"steps", plain_steps},
      // The four buckets start once all gradients are ready and the host has looked at them.
      {"steps that look for NaN", plain_steps, Nonfinite::skip, {1, 2, 3, 4, 7, 8, 9, 10}},
      {"broadcasts", broadcasts},
      // The covered joins are a reserve() after a step, buckets that start after others, and work that the host has
      // waited for.
      {"replays", replays, Nonfinite::propagate, {5, 6, 8, 9, 10, 13, 22}},
      {"reserves", reserves, Nonfinite::propagate, {0, 3, 4, 5}},
      {"loads", loads, Nonfinite::propagate, {0, 1, 3, 4, 5}},
  };
  for (const Scenario& scenario : scenarios) {
    std::uint64_t joins = 0;
    EXPECT_EQ(error_without(~std::uint64_t{0}, scenario.run, scenario.nonfinite, joins), "") << scenario.name;
    EXPECT_GE(joins, 2U) << scenario.name;
    for (std::uint64_t join = 0, ignored = 0; join < joins; ++join) {
      const std::string error = error_without(join, scenario.run, scenario.nonfinite, ignored);
      const bool noticed =
          error.find("no event is between them") != std::string::npos || error.find("the capture") != std::string::npos;
      EXPECT_EQ(noticed, !scenario.covered.contains(join))
          << scenario.name << ", join " << join << " of " << joins << ": " << error;
    }
  }
}

TEST(DeviceSession, ATicketCanBeWaitedForInTheMiddleOfAStep) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, uniform("int8"));
    fill(trainer.gradients, transport->rank(), 0);
    std::vector<Ticket> tickets(trainer.gradients.size());
    for (std::size_t t = trainer.gradients.size(); t-- > 0;) {
      tickets[t] = trainer.session.ready(trainer.gradients[t].id);
    }
    trainer.session.wait(tickets[0]);
    EXPECT_EQ(trainer.device->waiting(), 0U);
    trainer.session.finish();
  });
}

}  // namespace
}  // namespace gradwire::test
