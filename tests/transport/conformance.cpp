#include "tests/transport/conformance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <thread>

#include "tests/support/error_of.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::vector<int> peers_of(const Transport& transport) {
  std::vector<int> peers;
  for (int step = 1; step < transport.world_size(); ++step) {
    peers.push_back((transport.rank() + step) % transport.world_size());
  }
  return peers;
}

void any_size(Transport& transport) {
  Tag tag = 0;
  for (const std::size_t bytes :
       {0UL, 1UL, 7UL, 2047UL, 2048UL, 2049UL, 4088UL, 8192UL, 8193UL, 100'000UL, 300'000UL}) {
    Batch batch(transport);
    for (const int peer : peers_of(transport)) {
      batch.receive(peer, tag, pattern(peer, transport.rank(), tag, bytes));
      batch.send(peer, tag, pattern(transport.rank(), peer, tag, bytes));
    }
    batch.wait();
    ++tag;
  }
}

void order_within_a_tag(Transport& transport) {
  for (const bool receives_first : {true, false}) {
    Batch sends(transport);
    Batch receives(transport);
    for (const bool receiving : {receives_first, !receives_first}) {
      for (std::size_t i = 0; i < 24; ++i) {
        const std::size_t bytes = std::array{3UL, 0UL, 9000UL, 20'000UL}[i % 4];
        for (const int peer : peers_of(transport)) {
          if (receiving) {
            receives.receive(peer, 5, pattern(peer, transport.rank(), i, bytes));
          } else {
            sends.send(peer, 5, pattern(transport.rank(), peer, i, bytes));
          }
        }
      }
      transport.progress(milliseconds(2));
    }
    receives.wait();
    sends.wait();
  }
}

void many_tags_matched_in_any_order(Transport& transport) {
  constexpr int kTags = 100;
  const auto tag = [](int i) { return static_cast<Tag>(static_cast<std::uint64_t>(i) * 0x3fedcbaULL % kTagLimit); };
  Batch batch(transport);
  for (int i = 0; i < kTags; ++i) {
    for (const int peer : peers_of(transport)) {
      batch.send(peer, tag(i), pattern(transport.rank(), peer, tag(i), static_cast<std::size_t>(i) * 113));
    }
  }
  for (int i = kTags - 1; i >= 0; --i) {
    for (const int peer : peers_of(transport)) {
      batch.receive(peer, tag(i), pattern(peer, transport.rank(), tag(i), static_cast<std::size_t>(i) * 113));
    }
  }
  for (const int peer : peers_of(transport)) {  // uses the largest tag
    batch.receive(peer, kTagLimit - 1, Bytes(3));
    batch.send(peer, kTagLimit - 1, Bytes(3));
  }
  batch.wait();
}

void flood_both_ways(Transport& transport) {
  Batch batch(transport);
  for (Tag i = 0; i < 18; ++i) {
    for (const int peer : peers_of(transport)) {
      batch.receive(peer, i % 3, pattern(peer, transport.rank(), i, 40'000));
      batch.send(peer, i % 3, pattern(transport.rank(), peer, i, 40'000));
    }
  }
  batch.wait();
}

void message_of_another_size(Transport& transport) {
  constexpr std::array<std::array<std::size_t, 2>, 8> kPostedAndSent{
      {{16, 8}, {8, 16}, {0, 1}, {1, 0}, {200'000, 100'000}, {100'000, 200'000}, {100, 100'000}, {100'000, 100}}};
  const int last = transport.world_size() - 1;
  Tag tag = 10;
  for (const auto& [posted, sent] : kPostedAndSent) {
    ++tag;
    Batch batch(transport);
    if (last > 0 && transport.rank() == last) {
      batch.send(0, tag, Bytes(sent));
    } else if (last > 0 && transport.rank() == 0) {
      batch.receive(last, tag, Bytes(posted));
      const Error error = error_of([&] { batch.wait(); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.cause(), ErrorCause::rank);
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last)));
      EXPECT_THAT(error.what(), HasSubstr("tag " + std::to_string(tag)));
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(posted) + " bytes"));
      EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("has " + std::to_string(sent)), HasSubstr(" or more"),
                                                 HasSubstr("has more")));
    }
    barrier(transport, 1);
  }
}

// Mutations tried: a receive of at most n bytes keeps the size that was posted; MPI's short message counts as a head.
void at_most_takes_any_smaller_size(Transport& transport) {
  ASSERT_TRUE(transport.capabilities().receives_at_most);
  constexpr std::array kSizes{0UL, 1UL, 2040UL, 2047UL, 2048UL, 2049UL, 8192UL, 8193UL, 100'000UL};
  for (const bool receives_first : {true, false}) {
    const TransportCounters before = transport.counters();
    Batch sends(transport);
    Batch receives(transport);
    std::uint64_t bytes = 0;
    for (const bool receiving : {receives_first, !receives_first}) {
      for (std::size_t i = 0; i < 2 * kSizes.size(); ++i) {
        const std::size_t size = kSizes[i / 2];
        const std::size_t room = i % 2 == 0 ? size : size + std::array{1UL, 5000UL, 100'000UL}[i % 3];
        for (const int peer : peers_of(transport)) {
          if (receiving) {
            receives.receive_at_most(peer, 6, room, pattern(peer, transport.rank(), i, size));
          } else {
            sends.send(peer, 6, pattern(transport.rank(), peer, i, size));
            bytes += size;
          }
        }
      }
      transport.progress(milliseconds(2));
    }
    receives.wait();
    sends.wait();
    EXPECT_EQ(transport.counters().bytes_sent - before.bytes_sent, bytes);
    EXPECT_EQ(transport.counters().bytes_received - before.bytes_received, bytes) << "what came, not the room for it";
  }
}

void both_kinds_of_receives_stay_in_order(Transport& transport) {
  ASSERT_TRUE(transport.capabilities().receives_at_most);
  Batch batch(transport);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::size_t bytes = std::array{3UL, 30'000UL, 0UL, 2500UL, 700UL}[i % 5];
    for (const int peer : peers_of(transport)) {
      if (i % 3 == 0) {
        batch.receive(peer, 7, pattern(peer, transport.rank(), i, bytes));
      } else {
        batch.receive_at_most(peer, 7, i % 3 == 1 ? 40'000 : bytes, pattern(peer, transport.rank(), i, bytes));
      }
      batch.send(peer, 7, pattern(transport.rank(), peer, i, bytes));
    }
  }
  batch.wait();
}

void longer_than_at_most(Transport& transport) {
  ASSERT_TRUE(transport.capabilities().receives_at_most);
  const int last = transport.world_size() - 1;
  Tag tag = 50;
  for (const auto& [room, sent] : {std::array{0UL, 1UL}, {8UL, 16UL}, {100UL, 100'000UL}, {100'000UL, 100'001UL}}) {
    ++tag;
    Batch batch(transport);
    if (last > 0 && transport.rank() == last) {
      batch.send(0, tag, Bytes(sent));
    } else if (last > 0 && transport.rank() == 0) {
      batch.receive_at_most(last, tag, room, {});
      const Error error = error_of([&] { batch.wait(); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(), HasSubstr("at most " + std::to_string(room) + " bytes"));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last) + ", tag " + std::to_string(tag)));
    }
    barrier(transport, 1);
  }
}

// The cause is told by the error, not by its code. Mutation tried: an abort keeps the code and the text alone.
void abort_reaches_every_waiter(Transport& transport) {
  const int origin = transport.world_size() - 1;
  Operation operation;
  Bytes data(100'000);
  const Error seen = error_of([&] {
    barrier(transport, 1);  // a late rank gets the error here
    if (transport.rank() == origin) {
      std::this_thread::sleep_for(milliseconds(20));  // lets the other ranks wait already
      transport.abort(Error(ErrorCode::transport, "no descriptor is free", ErrorCause::rank));
      transport.abort(Error(ErrorCode::timeout, "too late: the first abort wins", ErrorCause::world));
    }
    if (transport.world_size() > 1) {
      transport.post_receive(operation, (transport.rank() + 1) % transport.world_size(), 3, data);
    }
    for (int i = 0; i < 60; ++i) {
      transport.progress(std::chrono::minutes(10));  // the watchdog ends a rank that is not woken
    }
  });
  transport.cancel(operation);
  const ErrorCode expected = transport.rank() == origin ? ErrorCode::transport : ErrorCode::aborted;
  EXPECT_EQ(seen.code(), expected);
  EXPECT_EQ(seen.cause(), transport.rank() == origin ? ErrorCause::rank : ErrorCause::world);
  EXPECT_THAT(seen.what(), HasSubstr("no descriptor is free"));
  if (transport.rank() != origin) {
    EXPECT_THAT(seen.what(), HasSubstr("rank " + std::to_string(origin)));
    Operation again;
    EXPECT_EQ(error_of([&] { transport.post_send(again, origin, 1, data); }).code(), expected);
    EXPECT_EQ(error_of([&] { transport.post_receive(again, origin, 1, data); }).code(), expected);
    EXPECT_FALSE(again.pending());
  }
  EXPECT_EQ(error_of([&] { transport.progress(microseconds(0)); }).code(), expected);
}

void abort_from_a_thread_wakes_its_own_rank(Transport& transport) {
  Operation operation;
  Bytes data(1);
  std::thread thread;
  if (transport.rank() == 0) {
    thread = std::thread([&] {
      std::this_thread::sleep_for(milliseconds(20));
      transport.abort(Error(ErrorCode::internal, "watchdog bit", ErrorCause::world));
    });
  }
  const Error seen = error_of([&] {
    if (transport.world_size() > 1) {  // it also throws on a rank that is late
      transport.post_receive(operation, (transport.rank() + 1) % transport.world_size(), 3, data);
    }
    for (int i = 0; i < 60'000; ++i) {
      transport.progress(std::chrono::minutes(10));
      std::this_thread::sleep_for(milliseconds(1));  // in a world of one, progress returns at once
    }
  });
  if (thread.joinable()) {
    thread.join();
  }
  transport.cancel(operation);
  EXPECT_EQ(seen.code(), transport.rank() == 0 ? ErrorCode::internal : ErrorCode::aborted);
  EXPECT_EQ(seen.cause(), ErrorCause::world);
  EXPECT_THAT(seen.what(), HasSubstr("watchdog bit"));
}

void counters_are_exact(Transport& transport) {
  const TransportCounters before = transport.counters();
  EXPECT_EQ(before.bytes_sent + before.bytes_received + before.messages_sent + before.messages_received, 0U);
  const auto peers = peers_of(transport);
  constexpr std::array kSizes{0UL, 5UL, 10'000UL, 3000UL};
  Batch batch(transport);
  std::vector<Operation*> sends;
  for (const std::size_t bytes : kSizes) {
    for (const int peer : peers) {
      batch.receive(peer, 2, Bytes(bytes));
      sends.push_back(&batch.send(peer, 2, Bytes(bytes)));
    }
  }
  batch.wait();
  const TransportCounters after = transport.counters();
  const std::uint64_t bytes = peers.size() * std::accumulate(kSizes.begin(), kSizes.end(), std::uint64_t{0});
  EXPECT_EQ(after.bytes_sent, bytes);
  EXPECT_EQ(after.bytes_received, bytes);
  EXPECT_EQ(after.messages_sent, peers.size() * kSizes.size());
  EXPECT_EQ(after.messages_received, peers.size() * kSizes.size());
  EXPECT_EQ(after.native_all_reduces, 0U);
  for (const Operation* send : sends) {
    EXPECT_EQ(send->bytes_counted, send->bytes);
  }
}

void progress_returns(Transport& transport) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(transport.progress(std::chrono::seconds(30)));  // returns at once, as nothing is pending
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  if (transport.world_size() > 1) {
    Operation operation;
    Bytes data(10);
    transport.post_receive(operation, (transport.rank() + 1) % transport.world_size(), 9, data);
    EXPECT_FALSE(transport.progress(microseconds(0)));
    EXPECT_FALSE(transport.progress(milliseconds(2)));  // no rank sends
    EXPECT_TRUE(operation.pending());
    EXPECT_TRUE(transport.cancel(operation));
    EXPECT_FALSE(operation.pending());
  }
  barrier(transport, 1);
}

void cancelled_receive_takes_nothing(Transport& transport) {
  if (transport.world_size() > 1) {
    const int next = (transport.rank() + 1) % transport.world_size();
    const int previous = (transport.rank() + transport.world_size() - 1) % transport.world_size();
    for (const std::size_t bytes : {100UL, 100'000UL}) {
      Operation cancelled;
      Bytes untouched(bytes);
      transport.post_receive(cancelled, previous, 4, untouched);
      transport.progress(microseconds(0));
      EXPECT_TRUE(transport.cancel(cancelled));
      EXPECT_TRUE(transport.cancel(cancelled)) << "cancelling an operation that is not pending is no error";
      transport.post_receive_at_most(cancelled, previous, 4, untouched);
      transport.progress(microseconds(0));
      EXPECT_TRUE(transport.cancel(cancelled));
      barrier(transport, 1);
      Batch batch(transport);
      batch.send(next, 4, pattern(transport.rank(), next, bytes, bytes));
      batch.receive_at_most(previous, 4, 2 * bytes, pattern(previous, transport.rank(), bytes, bytes));
      batch.wait();
      EXPECT_TRUE(untouched == Bytes(bytes));
    }
  }
}

template <class T>
void check_all_reduce(Transport& transport, DType dtype, std::uint64_t count) {
  std::vector<T> values(count);
  const auto value = [](int rank, std::uint64_t i) {
    return static_cast<T>((i * 7 + static_cast<std::uint64_t>(rank) * 3) % 64);
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = value(transport.rank(), i);
  }
  const TransportCounters before = transport.counters();
  Operation operation;
  transport.post_all_reduce(operation, view(values.data(), count, dtype));
  while (!operation.done()) {
    transport.progress(milliseconds(100));
  }
  const auto world = static_cast<std::uint64_t>(transport.world_size());
  EXPECT_EQ(operation.bytes_counted, 2 * (world - 1) * count * sizeof(T) / world);
  EXPECT_EQ(transport.counters().bytes_sent - before.bytes_sent, operation.bytes_counted);
  EXPECT_EQ(transport.counters().native_all_reduces - before.native_all_reduces, 1U);
  for (std::uint64_t i = 0; i < count; ++i) {
    T sum = 0;
    for (int rank = 0; rank < transport.world_size(); ++rank) {
      sum += value(rank, i);
    }
    ASSERT_EQ(values[i], sum) << "element " << i << " of " << count;
  }
}

void native_all_reduce(Transport& transport) {
  const TransportCapabilities capabilities = transport.capabilities();
  std::vector<double> values(4);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const bool has = (dtype == DType::f32 && capabilities.native_all_reduce_f32) ||
                     (dtype == DType::f64 && capabilities.native_all_reduce_f64);
    if (!has) {
      Operation operation;
      const auto post = [&] { transport.post_all_reduce(operation, view(values.data(), 4, dtype)); };
      EXPECT_EQ(error_of(post).code(), ErrorCode::unsupported);
      EXPECT_FALSE(operation.pending());
      continue;
    }
    for (const std::uint64_t count : {0UL, 1UL, 1000UL, 250UL, 30'011UL}) {
      dtype == DType::f32 ? check_all_reduce<float>(transport, dtype, count)
                          : check_all_reduce<double>(transport, dtype, count);
    }
  }
}

void blocking_all_reduce(Transport& transport) {
  std::vector<float> values(1000);
  const auto call = [&] { transport.all_reduce(view(values.data(), values.size())); };
  if (!transport.capabilities().all_reduce_in_call) {
    EXPECT_EQ(error_of(call).code(), ErrorCode::unsupported);
    return;
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 64) + static_cast<float>(transport.rank());
    }
    const TransportCounters before = transport.counters();
    call();
    EXPECT_EQ(transport.counters().native_all_reduces - before.native_all_reduces, 1U);
    EXPECT_GT(transport.counters().bytes_sent, before.bytes_sent);
    const auto ranks = static_cast<float>(transport.world_size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(i % 64) * ranks + ranks * (ranks - 1) / 2);
    }
  }
}

void bad_arguments(Transport& transport) {
  Operation operation;
  Bytes data(8);
  const auto expect_rejected = [&](int peer, Tag tag, std::span<std::byte> bytes) {
    for (const bool sending : {true, false}) {
      const Error error = error_of([&] {
        sending ? transport.post_send(operation, peer, tag, bytes)
                : transport.post_receive(operation, peer, tag, bytes);
      });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_FALSE(operation.pending());
    }
  };
  expect_rejected(transport.rank(), 0, data);
  expect_rejected(-1, 0, data);
  expect_rejected(transport.world_size(), 0, data);
  if (transport.world_size() > 1) {
    const int peer = (transport.rank() + 1) % transport.world_size();
    expect_rejected(peer, kTagLimit, data);
    expect_rejected(peer, 0, std::span<std::byte>(static_cast<std::byte*>(nullptr), 8));
    transport.post_receive(operation, peer, 77, data);
    const auto post_again = [&] { transport.post_receive(operation, peer, 78, data); };
    EXPECT_EQ(error_of(post_again).code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(transport.cancel(operation));
  }
  EXPECT_FALSE(transport.name().empty());
}

constexpr std::array kScenarios{
    Scenario{"any_size", any_size},
    Scenario{"order_within_a_tag", order_within_a_tag},
    Scenario{"many_tags_matched_in_any_order", many_tags_matched_in_any_order},
    Scenario{"flood_both_ways", flood_both_ways},
    Scenario{"message_of_another_size", message_of_another_size},
    Scenario{"at_most_takes_any_smaller_size", at_most_takes_any_smaller_size},
    Scenario{"both_kinds_of_receives_stay_in_order", both_kinds_of_receives_stay_in_order},
    Scenario{"longer_than_at_most", longer_than_at_most},
    Scenario{"abort_reaches_every_waiter", abort_reaches_every_waiter},
    Scenario{"abort_from_a_thread_wakes_its_own_rank", abort_from_a_thread_wakes_its_own_rank},
    Scenario{"counters_are_exact", counters_are_exact},
    Scenario{"progress_returns", progress_returns},
    Scenario{"cancelled_receive_takes_nothing", cancelled_receive_takes_nothing},
    Scenario{"native_all_reduce", native_all_reduce},
    Scenario{"blocking_all_reduce", blocking_all_reduce},
    Scenario{"bad_arguments", bad_arguments},
};

}  // namespace

std::span<const Scenario> transport_scenarios() { return kScenarios; }

}  // namespace gradwire::test
