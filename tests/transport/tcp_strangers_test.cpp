// Tests which peers a port accepts as joining processes, and which join files are trusted.
#include "tests/transport/tcp_job.hpp"

namespace gradwire::test {
namespace {

TEST_F(TcpProcesses, StrangersAreDroppedSilently) {
  start(2);
  const auto processes = lines();
  std::vector<Socket> strangers;
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(), std::string(200, '\xff')}) {
    std::string why;
    const auto& place = processes[0].card.places.at(0);
    strangers.push_back(transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why));
    ASSERT_TRUE(strangers.back().valid()) << why;
    EXPECT_TRUE(transport::tcp::write_until(strangers.back(), std::as_bytes(std::span(said)), Clock::now()));
  }
  // This peer knows the secret, but sends what no joining process would send.
  const Half odd = begin_to_join(processes[0], transport::tcp::kFirstToken + 9);
  EXPECT_TRUE(transport::tcp::write_message(odd.prompt, "alive -7 what\nis this", Clock::now() + seconds(5)));
  EXPECT_FALSE(transport::tcp::read_message(odd.prompt, Clock::now() + seconds(10)));
  // The process names an id that is taken, one far beyond the others, a process that has ended already, one that cannot
  // be reached, and one whose name would be two lines.
  using State = Acquaintance::State;
  const transport::tcp::Card& card = processes[0].card;
  for (const Acquaintance& who : {Acquaintance{.id = 1, .state = {}, .card = card, .name = "twice"},
                                  Acquaintance{.id = 5000, .state = {}, .card = card, .name = "far"},
                                  Acquaintance{.id = 2, .state = State::ended, .card = card, .name = "ended"},
                                  Acquaintance{.id = 2, .state = {}, .card = {}, .name = "nowhere"},
                                  Acquaintance{.id = 2, .state = {}, .card = card, .name = "two\nlines"}}) {
    const Half guest = begin_to_join(processes[0], transport::tcp::kFirstToken + 10);
    EXPECT_TRUE(transport::tcp::write_message(guest.prompt, who.to_text(), Clock::now() + seconds(5)));
    EXPECT_FALSE(transport::tcp::read_message(guest.prompt, Clock::now() + seconds(10))) << who.name;
  }

  Ear& joiner = join();
  expect_world({&at(0), &at(1), &joiner}, 2);
  EXPECT_THAT(at(0)->newcomers(), ElementsAre(joiner.id()));
}

// Mutation tried: the process warns at each try.
TEST_F(TcpProcesses, AProcessWithoutDescriptorsWarnsOnce) {
  if (kStepShare > 1) {
    GTEST_SKIP() << "a sanitizer needs descriptors of its own to look at memory";
  }
  start(1);
  const auto place = lines().at(0).card.places.at(0);
  const HeardLog log;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::string why;
  {
    const bool ipv6 = place.address.find(':') != std::string::npos;
    const Socket client(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int next = dup(client.fd());  // the lowest free descriptor
    ASSERT_EQ(close(next), 0);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    sockaddr_in four{.sin_family = AF_INET, .sin_port = htons(place.port), .sin_addr = {}, .sin_zero = {}};
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(place.port);
    void* const bytes = ipv6 ? static_cast<void*>(&six.sin6_addr) : &four.sin_addr;
    EXPECT_EQ(inet_pton(ipv6 ? AF_INET6 : AF_INET, place.address.c_str(), bytes), 1);
    const auto* const address = ipv6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
    EXPECT_EQ(connect(client.fd(), address, ipv6 ? sizeof(six) : sizeof(four)), 0);
    std::this_thread::sleep_for(seconds(1));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  }
  EXPECT_THAT(HeardLog::all(), ElementsAre(HasSubstr("nobody can join at this moment")));
  EXPECT_EQ(join().id(), 1U);
}

// Returns whether neither an answer nor an end of the connection comes.
bool is_silent(const Socket& socket) {
  std::byte any{};
  std::this_thread::sleep_for(milliseconds(300));
  return recv(socket.fd(), &any, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// Mutations tried: a peer is dropped at its first wrong byte; a peer with a wrong greeting is dropped at its end.
TEST_F(TcpProcesses, TheSecretCannotBeGuessedByParts) {
  start(1);
  const auto process = lines().at(0);
  const auto& place = process.card.places.at(0);
  const transport::tcp::Greeting right{.nonce = process.card.nonce, .rank = transport::tcp::kFirstToken};
  for (const std::size_t wrong : {0U, 7U, 99U}) {  // index of the wrong byte of the secret
    for (const std::size_t bytes : {9U, 15U, 24U}) {
      transport::tcp::Greeting said = right;
      if (wrong < 8) {
        said.nonce ^= std::uint64_t{1} << (8 * wrong);
      }
      std::string why;
      const Socket socket = transport::tcp::connect_until(place.address, place.port, Clock::now() + seconds(5), why);
      ASSERT_TRUE(socket.valid()) << why;
      EXPECT_TRUE(transport::tcp::write_until(socket, bytes_of(said).first(bytes), Clock::now()));
      EXPECT_EQ(is_silent(socket), bytes < 24 || wrong < 8) << bytes << " bytes, of which " << wrong << " is wrong";
    }
  }
}

TEST_F(TcpProcesses, AWrongSecretLeadsNowhere) {
  start(1);
  auto wrong = lines();
  ++wrong[0].card.nonce;
  transport::tcp::write_join_file(file_, wrong);
  const Error error = error_of([&] { (void)join_plain(seconds(1)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("process 0 does not answer"));
  EXPECT_THAT(at(0)->newcomers(), IsEmpty());
}

TEST_F(TcpProcesses, AJobThatHasEndedIsSaidSoAtOnce) {
  start(3);
  std::filesystem::copy_file(file_, file_ + ".kept");
  all_.clear();
  EXPECT_THAT(error_of([&] { (void)join_plain(seconds(60)); }).what(), HasSubstr("its job has ended"));
  std::filesystem::rename(file_ + ".kept", file_);  // as killed processes leave it
  const auto begin = Clock::now();
  const Error error = error_of([&] { (void)join_plain(seconds(60)); });
  EXPECT_LT(Clock::now() - begin, seconds(5));
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("nobody of the 3 processes"));
  start(2);  // then its file is used again
  EXPECT_EQ(lines().size(), 2U);
  Ear& joiner = join();
  EXPECT_EQ(joiner.id(), 2U);
}

TEST_F(TcpProcesses, FilesThatCannotBeAreRefused) {
  EXPECT_EQ(error_of([&] { (void)join_plain(); }).code(), ErrorCode::invalid_argument) << "there is no such file";
  std::ofstream(file_) << "a letter to somebody\n";
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { (void)join_plain(); }).what(), HasSubstr("is no join file"));
  EXPECT_THAT(error_of([&] { start(2); }).what(), HasSubstr("is no join file"));
  std::ofstream(file_) << "gradwire-join 0.0.7 0 4711 127.0.0.1 9\n";
  const Error version = error_of([&] { (void)join_plain(); });
  EXPECT_EQ(version.code(), ErrorCode::mismatch);
  EXPECT_THAT(version.what(), ::testing::AllOf(HasSubstr("0.0.7"), HasSubstr(file_)));
  EXPECT_THAT(error_of([&] { start(2, (folder_ / "none" / "join").string()); }).what(), HasSubstr("is no folder"));
  start(2);
  const Error used = error_of([&] { start(2); });
  EXPECT_EQ(used.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(used.what(), HasSubstr("belongs to a job that runs"));
}

// Mutations tried: there are 5 s for all together; a process that accepts connections and says nothing counts as ended.
TEST_F(TcpProcesses, AFileOfWhichAProcessIsStoppedIsNotTaken) {
  const std::vector<std::string> loopback{transport::tcp::addresses_for("", true).front()};
  const auto stopped = transport::tcp::listen_on(loopback, "");
  const auto other = transport::tcp::listen_on(loopback, "");
  const auto write = [&](std::vector<transport::tcp::Card> cards) {
    std::vector<Acquaintance> processes;
    for (transport::tcp::Card& card : cards) {
      processes.push_back({.id = static_cast<Id>(processes.size()), .state = {}, .card = std::move(card), .name = {}});
    }
    transport::tcp::write_join_file(file_, processes);
  };
  write({stopped.card, other.card});
  const auto begin = Clock::now();
  const Error error = error_of([&] { start(1); });
  EXPECT_LT(Clock::now() - begin, seconds(9)) << "the processes were asked one after the other";
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("belongs to a job that runs"), HasSubstr("takes connections")));
}

TEST_F(TcpProcesses, OneJobAtATimeTakesAFile) {
  using transport::tcp::JoinFileClaim;
  for (const bool old : {false, true}) {
    if (old) {
      transport::tcp::write_join_file(
          file_, {{.id = 0, .state = {}, .card = {.nonce = 7, .places = {{"127.0.0.1", 1}}}, .name = {}}});
    }
    const JoinFileClaim first(file_);
    in_parallel(4, [&](int) {
      const Error error = error_of([&] { const JoinFileClaim second(file_); });
      EXPECT_THAT(error.what(), HasSubstr("which starts at this moment"));
    });
    EXPECT_TRUE(std::filesystem::exists(file_));
  }
  std::filesystem::remove(file_);
  { const JoinFileClaim nothing_came_of_it(file_); }
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// Mutations tried: no flag O_NOFOLLOW; the mode, or some of its bits, are not checked; a line is appended to half a
// line; one bad line makes the whole file bad.
TEST_F(TcpProcesses, JoinFilesAreTrustedOnlyIfNobodyElseWritesThem) {
  start(1);
  const auto refused = [&](const std::string& why) {
    const Error error = error_of([&] { (void)join_plain(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(why));
  };
  ASSERT_EQ(chmod(file_.c_str(), 0620), 0);
  refused("can be written by other users");
  ASSERT_EQ(chmod(file_.c_str(), 0602), 0);
  refused("can be written by other users");
  for (const mode_t readable : {0640U, 0604U}) {
    ASSERT_EQ(chmod(file_.c_str(), readable), 0);
    refused("can be read by other users");
  }
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file_.c_str(), 1, 1), 0);
    refused("belongs to another user");
    ASSERT_EQ(chown(file_.c_str(), 0, 0), 0);
  }
  const std::string moved = file_ + ".moved";
  std::filesystem::rename(file_, moved);
  std::filesystem::create_symlink(moved, file_);
  refused("it is a link");
  transport::tcp::append_to_join_file(file_, transport::tcp::read_join_file(moved).at(0));
  EXPECT_EQ(transport::tcp::read_join_file(moved).size(), 1U) << "appended through the link";
  std::filesystem::remove(file_);
  std::ofstream(file_).close();
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  refused("is empty");
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  refused("no regular file");
  std::filesystem::remove(file_);
  std::filesystem::rename(moved, file_);
  std::ofstream(file_, std::ios::app) << "\ngradwire-join 0.1.0 what\ngradwire-join " << kVersion << " 1 4711 127.0.0";
  Ear& joiner = join();
  ASSERT_EQ(lines().size(), 2U) << "the half line hides the next one";
  EXPECT_EQ(lines()[1].id, joiner.id());
}

TEST_F(TcpProcesses, WhatNoProcessSaysIsNotUnderstood) {
  using transport::tcp::Turn;
  EXPECT_TRUE(Acquaintance::from_text("ended 3 7 127.0.0.1 9 ::1 10\tprocess 1 on host a"));
  EXPECT_TRUE(Acquaintance::from_text("alive 3 7\t")) << "nobody can join this process";
  for (const std::string text :
       {"", "alive 3 7 127.0.0.1 9", "dead 3 7 127.0.0.1 9\ta", "alive -3 7 127.0.0.1 9\ta",
        "alive 3x 7 127.0.0.1 9\ta", "alive 1073741824 7 127.0.0.1 9\ta", "alive 3\ta", "alive 3 7 127.0.0.1\ta",
        "alive 3 7 127.0.0.1 0\ta", "alive 3 7 127.0.0.1 65536\ta", "alive 3 7 somewhere 9\ta",
        "alive 3 7 127.0.0.1 9 \x1b\ta", "alive 3 7 127.0.0.1 9\ta\nb", "alive 3 7 127.0.0.1 9\t\x1b[2J"}) {
    EXPECT_FALSE(Acquaintance::from_text(text)) << text;
  }
  EXPECT_FALSE(Acquaintance::from_text("alive 3 7 127.0.0.1 9\t" + std::string(2000, 'a')));
  const std::string one = "alive 0 7 127.0.0.1 9\ta\n";
  EXPECT_TRUE(Turn::from_text("1 0\n" + one));
  for (const std::string text : {"", "0 0\n", "3 1\n", "1 1073741823\n", "1 0 5\n", "1 0\nalive 1 7 127.0.0.1 9\ta\n",
                                 "1 0\nalive 0 7\ta\n", "1 0\n\n"}) {
    EXPECT_FALSE(Turn::from_text(text)) << text;
  }
}

}  // namespace
}  // namespace gradwire::test
