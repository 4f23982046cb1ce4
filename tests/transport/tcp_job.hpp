// A job of TcpProcesses for tests: its processes are objects in one process, each with a thread that listens.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include "base/log.hpp"
#include "gradwire/version.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/heard_log.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/step_share.hpp"
#include "tests/transport/exchange.hpp"
#include "tests/transport/tcp_world.hpp"
#include "transport/tcp/tcp_door.hpp"
#include "transport/tcp/tcp_introduction.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_processes.hpp"
#include "transport/tcp/tcp_reception.hpp"

namespace gradwire::test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using transport::tcp::Acquaintance;
using transport::tcp::Clock;
using transport::tcp::Socket;
using Id = Processes::Id;
using Lane = Processes::Lane;

// A process, the thread that listens for it, and the messages that it has heard.
class Ear {
 public:
  explicit Ear(std::shared_ptr<Processes> processes)
      : processes_(std::move(processes)), thread_([this] { listen(); }) {}
  ~Ear() {
    stop();
    thread_.join();
  }
  Ear(const Ear&) = delete;
  Ear& operator=(const Ear&) = delete;

  Processes* operator->() const { return processes_.get(); }
  [[nodiscard]] Id id() const { return processes_->self(); }

  /// Ends the process, as other processes see it.
  void stop() {
    stopped_ = true;
    processes_->end();
    processes_->wake();
  }

  bool wait_until(const std::function<bool()>& what, seconds limit = seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, what);
  }
  /// Waits until `what` has come from `from`: "came", "ended", or a message.
  [[nodiscard]] bool wait_for(Id from, const std::string& what) {
    return wait_until([&] { return std::ranges::count(heard_[from], what) > 0; });
  }
  [[nodiscard]] std::vector<std::string> heard(Id from) {
    const std::lock_guard lock(mutex_);
    return heard_[from];
  }

  /// Returns the world and the step that came with the end.
  [[nodiscard]] std::pair<std::uint32_t, std::uint64_t> end_of(Id from) {
    const std::lock_guard lock(mutex_);
    return ends_[from];
  }

  void say(Id to, const std::string& what, Lane lane = Lane::prompt) {
    processes_->send(to, std::as_bytes(std::span(what)), lane);
  }
  [[nodiscard]] std::shared_ptr<Transport> connect(const std::vector<Id>& members, std::uint32_t epoch,
                                                   milliseconds timeout = seconds(20)) {
    return processes_->connect(members, epoch, timeout);
  }

 private:
  void listen() {
    while (!stopped_) {
      for (const Processes::Heard& one : processes_->hear(milliseconds(50))) {
        const std::lock_guard lock(mutex_);
        if (one.ended) {
          ends_[one.from] = {one.epoch, one.step};
        }
        heard_[one.from].push_back(
            one.came    ? "came"
            : one.ended ? "ended"
            : one.lost  ? "lost"
            : one.back  ? "back"
                        : std::string(reinterpret_cast<const char*>(one.message.data()), one.message.size()));
        changed_.notify_all();
      }
    }
  }

  std::shared_ptr<Processes> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Id, std::vector<std::string>> heard_;
  std::map<Id, std::pair<std::uint32_t, std::uint64_t>> ends_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

class TcpProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("gradwire_join_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    file_ = (folder_ / "join").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void start(int count) { start(count, file_); }
  void start(int count, const std::string& file) {
    MemoryStore store;
    std::vector<std::shared_ptr<Processes>> made(static_cast<std::size_t>(count));
    in_parallel(count, [&](int rank) {
      made[static_cast<std::size_t>(rank)] = transport::make_tcp_processes(
          store.rendezvous(),
          {.rank = rank, .world_size = count, .interface = "lo", .timeout = seconds(20), .keys = keys_},
          {.join_file = file});
    });
    for (auto& one : made) {
      all_.push_back(std::make_unique<Ear>(std::move(one)));
    }
  }
  [[nodiscard]] std::shared_ptr<Processes> join_plain(milliseconds timeout = seconds(60),
                                                      milliseconds first_word = seconds(5)) const {
    return transport::join_tcp_processes({.join_file = file_,
                                          .interface = "lo",
                                          .timeout = timeout,
                                          .first_word = first_word,
                                          .agent = {},
                                          .keys = keys_});
  }
  Ear& join(milliseconds timeout = seconds(60), milliseconds first_word = seconds(5)) {
    all_.push_back(std::make_unique<Ear>(join_plain(timeout, first_word)));
    return *all_.back();
  }
  Ear& at(std::size_t index) { return *all_.at(index); }

  static void in_parallel(int count, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::exception_ptr failure;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = failure ? failure : std::current_exception();  // the others' errors may follow from the first one
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

  /// Expects that these processes can form a world in which each sends to each.
  void expect_world(const std::vector<Ear*>& members, std::uint32_t epoch) {
    std::vector<Id> ids;
    for (const Ear* one : members) {
      ids.push_back(one->id());
    }
    in_parallel(static_cast<int>(members.size()), [&](int rank) {
      const auto transport = members[static_cast<std::size_t>(rank)]->connect(ids, epoch);
      EXPECT_EQ(transport->capabilities().encrypted, keys_ != nullptr);
      EXPECT_EQ(transport->rank(), rank);
      ASSERT_EQ(transport->world_size(), static_cast<int>(ids.size()));
      Batch batch(*transport);
      for (int peer = 0; peer < transport->world_size(); ++peer) {
        if (peer != rank) {
          batch.receive(peer, 7, pattern(peer, rank, epoch, 3000));
          batch.send(peer, 7, pattern(rank, peer, epoch, 3000));
        }
      }
      batch.wait();
      barrier(*transport, 8);
    });
  }
  /// Expects that each of these receives from each other one.
  static void expect_all_reach_all(const std::vector<Ear*>& ears, const std::string& word) {
    for (Ear* from : ears) {
      for (const Ear* to : ears) {
        if (from != to) {
          from->say(to->id(), word);
          from->say(to->id(), word + " in bulk", Lane::bulk);
        }
      }
    }
    for (Ear* to : ears) {
      for (const Ear* from : ears) {
        if (from != to) {
          EXPECT_TRUE(to->wait_for(from->id(), word)) << to->id() << " hears nothing of " << from->id();
          EXPECT_TRUE(to->wait_for(from->id(), word + " in bulk"));
        }
      }
    }
  }
  [[nodiscard]] std::vector<Acquaintance> lines() const { return transport::tcp::read_join_file(file_); }

  const Watchdog watchdog_{::testing::UnitTest::GetInstance()->current_test_info()->name()};
  std::filesystem::path folder_;
  std::string file_;
  Keys keys_;  // of processes that start or join from here on
  std::vector<std::unique_ptr<Ear>> all_;
};

// Both lanes to the process, as a joiner has them when it has its turn.
struct Half {
  Socket prompt;
  Socket bulk;
  std::optional<std::string> turn;
};
inline Half begin_to_join(const Acquaintance& process, std::uint32_t token, const Keys& keys = nullptr) {
  Half half;
  std::string why;
  const auto until = Clock::now() + seconds(10);
  half.prompt = process.card.reach(until, {.rank = token, .purpose = 1}, process.id, why, keys.get());
  half.bulk = process.card.reach(until, {.rank = token, .purpose = 0}, process.id, why, keys.get());
  EXPECT_TRUE(half.prompt.valid() && half.bulk.valid()) << why;
  half.turn = transport::tcp::read_message(half.prompt, until);
  EXPECT_TRUE(half.turn);
  return half;
}

}  // namespace gradwire::test
