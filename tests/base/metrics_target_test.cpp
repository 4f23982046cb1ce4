#include "base/metrics_target.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace gradwire {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTarget, IsADirectoryAPortOrBoth) {
  const auto file = MetricsTarget::parse("file:/var/lib/x, y");
  EXPECT_EQ(file.directory, "/var/lib/x, y");
  EXPECT_FALSE(file.http);

  const auto port = MetricsTarget::parse("http:9464");
  EXPECT_EQ(port.directory, "");
  ASSERT_TRUE(port.http);
  EXPECT_EQ(port.http->for_rank(3), "127.0.0.1:9464") << "loopback, unless told otherwise";

  const auto all = MetricsTarget::parse("http:0.0.0.0:65535+rank");
  EXPECT_EQ(all.http->for_rank(0), "0.0.0.0:65535");
  const Error error = test::error_of([&] { static_cast<void>(all.http->for_rank(1)); });
  EXPECT_THAT(error.what(), HasSubstr("port 65535 plus rank 1 is above 65535"));

  EXPECT_EQ(MetricsTarget::parse("http:[::1]:1+rank").http->for_rank(2), "[::1]:3");
  for (const char* both : {"file:/a,b,http:1.2.3.4:9464+rank", "http:1.2.3.4:9464+rank,file:/a,b"}) {
    const auto target = MetricsTarget::parse(both);
    EXPECT_EQ(target.directory, "/a,b");
    EXPECT_EQ(target.http->for_rank(1), "1.2.3.4:9465");
  }
}

TEST(MetricsTarget, SocketsInADirectory) {
  const auto target = MetricsTarget::parse("unix:/s, x,http:9464");
  EXPECT_EQ(target.sockets, "/s, x");
  EXPECT_TRUE(target.http);
}

TEST(MetricsTarget, OneOfEachInAnyOrder) {
  EXPECT_EQ(MetricsTarget::parse("otlp:/a, b").otlp, "/a, b");
  for (const char* all :
       {"otlp:/o,file:/f,x,http:9464", "http:9464,otlp:/o,file:/f,x", "file:/f,x,http:9464,otlp:/o"}) {
    const auto target = MetricsTarget::parse(all);
    EXPECT_EQ(target.otlp, "/o");
    EXPECT_EQ(target.directory, "/f,x");
    EXPECT_TRUE(target.http);
  }
}

TEST(MetricsTarget, WhatIsWrongIsQuotedWithWhatIsRight) {
  for (const char* bad : {"file:",
                          "/var/lib/x",
                          "http:",
                          "http:0",
                          "http:65536",
                          "http:+rank",
                          "http:x",
                          "http:9464+ranks",
                          "http:localhost:9464",
                          "http:1.2.3:9464",
                          "http:1.2.3.256:9464",
                          "http:1.2.3.4.5:9464",
                          "http::9464",
                          "http:::1:9464",
                          "http:[1]:9464",
                          "http:[::g]:9464",
                          "http:127.0.0.1",
                          "http:127.0.0.1:",
                          "http:-1",
                          "http:9464,http:9465",
                          "file:/a,file:/b",
                          "http:9464,/a",
                          "http:9464,",
                          " http:9464",
                          "HTTP:9464",
                          "otlp:",
                          "otlp:/a,otlp:/b",
                          "unix:",
                          "unix:/a,unix:/b",
                          "file:/a,htp:9464",
                          "otlp:/a, b,fil:/c"}) {
    const Error error = test::error_of([&] { static_cast<void>(MetricsTarget::parse(bad)); });
    EXPECT_THAT(error.what(), HasSubstr("write file:DIRECTORY, http:[ADDRESS:]PORT[+rank]"));
    EXPECT_THAT(error.what(), HasSubstr("\"" + std::string(bad) + "\""));
  }
}

}  // namespace
}  // namespace gradwire
