// Tests processes of a job with a key: that they reach each other and are joined, and what strangers, old keys,
// recordings and resets come to.
#include "hex_bytes.hpp"
#include "middle.hpp"
#include "tests/transport/tcp_job.hpp"

namespace gradwire::test {
namespace {

class SecureProcesses : public TcpProcesses {
 protected:
  void SetUp() override {
    TcpProcesses::SetUp();
    keys_ = keys_of(published_key());
  }
  // Starts processes whose connections pass through the middle.
  void start_behind(Middle& middle, int count) {
    MemoryStore store;
    std::vector<std::shared_ptr<Processes>> made(static_cast<std::size_t>(count));
    in_parallel(count, [&](int rank) {
      made[static_cast<std::size_t>(rank)] = transport::make_tcp_processes(
          middle.between(store.rendezvous()),
          {.rank = rank, .world_size = count, .interface = "lo", .timeout = seconds(20), .keys = keys_},
          {.join_file = file_});
    });
    for (auto& one : made) {
      all_.push_back(std::make_unique<Ear>(std::move(one)));
    }
  }
  // What nobody but the job's own processes may do: nothing of a stranger has come.
  void expect_unnoticed() {
    for (const auto& ear : all_) {
      EXPECT_THAT((*ear)->newcomers(), IsEmpty());
    }
    expect_all_reach_all({&at(0), &at(1)}, "still here");
    EXPECT_THAT(at(0).heard(1), ElementsAre("still here", "still here in bulk"));
  }
};

TEST_F(SecureProcesses, ReachEachOtherAndAreJoined) {
  start(3);
  EXPECT_TRUE(at(0)->encrypted());
  expect_all_reach_all({&at(0), &at(1), &at(2)}, "word");
  Ear& joiner = join();
  EXPECT_EQ(joiner.id(), 3U);
  EXPECT_TRUE(joiner->encrypted());
  expect_world({&at(0), &at(1), &at(2), &joiner}, 2);
  expect_all_reach_all({&at(0), &at(1), &at(2), &joiner}, "after");
  Ear& next = join();
  expect_world({&at(1), &joiner, &next}, 3);
}

TEST_F(SecureProcesses, AFarewellIsHeard) {
  start(2);
  at(1)->enter(4);
  at(1)->count(17);
  at(1).stop();
  ASSERT_TRUE(at(0).wait_for(1, "ended"));
  EXPECT_EQ(at(0).end_of(1), std::pair(4U, std::uint64_t{17}));
}

// A reset connection is silence: it is made anew, also where the job would trust resets. Mutation tried: resets are
// trusted here, too.
TEST_F(SecureProcesses, AResetIsNoEnd) {
  Middle middle;
  start_behind(middle, 2);
  at(0)->trust_resets();
  at(1)->trust_resets();
  expect_all_reach_all({&at(0), &at(1)}, "before");
  middle.cut();
  expect_all_reach_all({&at(0), &at(1)}, "after");
  for (const std::string& word : at(0).heard(1)) {
    EXPECT_NE(word, "ended");
  }
}

TEST_F(SecureProcesses, JoinersWithoutTheKeyAreRefusedUnnoticed) {
  start(2);
  const Keys right = keys_;
  for (const Keys& wrong : {Keys(), keys_of(security::Key::random())}) {
    keys_ = wrong;
    const auto begin = Clock::now();
    const Error error = error_of([&] { (void)join_plain(seconds(3)); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr(wrong ? "another key" : "it has a key"));
    EXPECT_LT(Clock::now() - begin, seconds(8));
  }
  keys_ = right;
  expect_unnoticed();
  EXPECT_EQ(join().id(), 2U);
}

TEST_F(SecureProcesses, AProcessWithAKeyRefusesAJobWithout) {
  keys_ = nullptr;
  start(2);
  EXPECT_FALSE(at(0)->encrypted());
  keys_ = keys_of(published_key());
  EXPECT_EQ(error_of([&] { (void)join_plain(seconds(2)); }).code(), ErrorCode::timeout);
  expect_unnoticed();
}

// A job must not overwrite the join file of one that runs, whatever key each has. Mutations tried: a failed handshake,
// or a connection that ends before the answer, means that the process has ended.
TEST_F(SecureProcesses, AFileOfAJobWithAnotherKeyIsNotTaken) {
  const std::vector<Keys> all{nullptr, keys_, keys_of(security::Key::random())};
  for (const Keys& running : all) {
    keys_ = running;
    start(1);
    for (const Keys& later : all) {
      const Error error = error_of([&] { transport::tcp::check_join_file_is_free(file_, later.get()); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("belongs to a job that runs"));
    }
    EXPECT_THAT(at(0)->newcomers(), IsEmpty());
    all_.clear();
    EXPECT_FALSE(std::filesystem::exists(file_)) << "the last process removes its file";
  }
}

// Mutation tried: the accepting side does not compare the greeting with whom TLS has proven.
TEST_F(SecureProcesses, AProvenNameIsTheOnlyOne) {
  start(2);
  const auto process = lines().at(0);
  enum class Lie { none, greeting, other_process, other_purpose };
  for (const Lie lie : {Lie::none, Lie::greeting, Lie::other_process, Lie::other_purpose}) {
    std::string why;
    const transport::tcp::Card::Place& place = process.card.places.at(0);
    Socket socket = transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why);
    ASSERT_TRUE(socket.valid()) << why;
    const transport::tcp::Greeting proven{
        .nonce = process.card.nonce, .rank = transport::tcp::kFirstToken + 4, .purpose = 1};
    transport::tcp::Greeting named = proven;
    named.purpose = lie == Lie::other_purpose ? 9 : named.purpose;
    keys_->encrypt(socket, named, lie == Lie::other_process ? 1 : process.id);
    transport::tcp::Greeting said = proven;
    said.rank = lie == Lie::greeting ? 1 : said.rank;
    const bool written = transport::tcp::write_until(socket, bytes_of(said), Clock::now() + seconds(5));
    EXPECT_EQ(written, lie == Lie::none || lie == Lie::greeting) << "TLS lets in a name that is not this process's";
    transport::tcp::Greeting answer;
    const auto until = Clock::now() + (lie == Lie::none ? seconds(5) : milliseconds(500));
    EXPECT_EQ(transport::tcp::read_until(socket, bytes_of(answer), until), lie == Lie::none);
  }
}

TEST_F(SecureProcesses, ARecordedJoinIsOfNoUse) {
  start(2);
  Middle middle;
  std::vector<transport::tcp::Card::Place> real;
  {
    auto first = lines();
    real = first.at(0).card.places;
    first.at(0).card = middle.before(first.at(0).card);
    const std::string copy = file_ + ".copy";
    transport::tcp::write_join_file(copy, {first.at(0)});
    const Half half = begin_to_join(transport::tcp::read_join_file(copy).at(0), transport::tcp::kFirstToken + 7, keys_);
    const Acquaintance who{.id = 2, .state = {}, .card = lines().at(1).card, .name = "recorded"};
    ASSERT_TRUE(transport::tcp::write_message(half.prompt, who.to_text(), Clock::now() + seconds(5)));
    EXPECT_EQ(transport::tcp::read_message(half.prompt, Clock::now() + seconds(10)), "admitted");
  }
  std::vector<Socket> replays;
  for (std::size_t i = 0; i < middle.count(); ++i) {
    std::string why;
    replays.push_back(
        transport::tcp::connect_until(real.at(0).address, real.at(0).port, Clock::now() + seconds(5), why));
    EXPECT_TRUE(transport::tcp::write_until(replays.back(), middle.recorded(i).first, Clock::now() + seconds(5)));
  }
  ASSERT_EQ(replays.size(), 2U);
  for (const Socket& replay : replays) {  // the process speaks its part of a handshake at most, and then ends it
    std::vector<std::byte> said;
    std::byte one{};
    while (transport::tcp::read_until(replay, std::span(&one, 1), Clock::now() + seconds(8))) {
      said.push_back(one);
    }
    EXPECT_LT(said.size(), 400U);
    EXPECT_TRUE(transport::tcp::is_at_end(replay));
  }
  expect_unnoticed();
}

// A process has ended, and somebody listens at its port.
TEST_F(SecureProcesses, AnImpostorAtADeadProcessesPortLearnsNothing) {
  start(2);
  auto file = lines();
  std::string why;
  transport::tcp::Listener impostor = transport::tcp::listen_at("127.0.0.1", why);
  ASSERT_TRUE(impostor.socket.valid()) << why;
  file.at(1).card.places = {{"127.0.0.1", impostor.port}};
  const std::uint64_t secret = file.at(1).card.nonce;
  const transport::tcp::Greeting greeting{.rank = transport::tcp::kFirstToken + 5, .purpose = 1};
  std::thread caller([&] {
    std::string ignored;
    EXPECT_FALSE(file.at(1).card.reach(Clock::now() + seconds(2), greeting, 1, ignored, keys_.get()).valid());
  });
  pollfd polled{impostor.socket.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&polled, 1, 10'000), 1);
  const Socket client(accept4(impostor.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  std::vector<std::byte> said;
  for (std::byte one{}; transport::tcp::read_until(client, std::span(&one, 1), Clock::now() + milliseconds(1500));) {
    said.push_back(one);
  }
  caller.join();
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.front(), std::byte{22}) << "no first message of TLS";
  const auto secret_bytes = std::as_bytes(std::span(&secret, 1));
  EXPECT_TRUE(std::ranges::search(said, secret_bytes).empty()) << "the secret of the process was told";
  EXPECT_LT(said.size(), 600U);
}

TEST_F(SecureProcesses, StrangersAreDropped) {
  start(2);
  const auto place = lines().at(0).card.places.at(0);
  std::vector<Socket> strangers;
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(), std::string(20'000, '\xff'),
                                  std::string("\x16\x03\x01\x40\x00\x01", 6)}) {
    std::string why;
    strangers.push_back(transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why));
    ASSERT_TRUE(strangers.back().valid()) << why;
    static_cast<void>(transport::tcp::write_until(strangers.back(), std::as_bytes(std::span(said)), Clock::now()));
  }
  expect_unnoticed();
  EXPECT_EQ(join().id(), 2U);
}

}  // namespace
}  // namespace gradwire::test
