# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Java: an echo server by NIO's Selector (one thread; connections and datagrams), one by blocking sockets (a thread each), and a client.
Its sockets are IPv6 ones, which serve IPv4, too. Opt-in, because a JDK is more to download (115 MB) than all other programs together:
JAVA=/usr/bin/java runs them (openjdk-17-jdk-headless).
"""

import contextlib
import os
import socket
import subprocess

import pytest

from netns import made_once
from serving import OURS, ended, no_kernel_connections, no_kernel_datagrams, start

JAVA = os.environ.get("JAVA")
SOURCES = {"Nio": """
import java.net.*; import java.nio.*; import java.nio.channels.*; import java.util.*;
public class Nio {
  public static void main(String[] a) throws Exception {
    Selector sel = Selector.open();
    InetSocketAddress at = new InetSocketAddress(a[0], 8080);
    ServerSocketChannel l = ServerSocketChannel.open(); l.bind(at);
    DatagramChannel u = DatagramChannel.open(); u.bind(at);
    l.configureBlocking(false); l.register(sel, SelectionKey.OP_ACCEPT);
    u.configureBlocking(false); u.register(sel, SelectionKey.OP_READ);
    ByteBuffer d = ByteBuffer.allocateDirect(2000);
    while (true) {
      sel.select();
      for (SelectionKey k : sel.selectedKeys()) {
        if (k.channel() == l) {
          SocketChannel s = l.accept(); s.configureBlocking(false);
          s.register(sel, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
        } else if (k.channel() == u) {
          d.clear(); SocketAddress from = u.receive(d); d.flip();
          if (from != null) u.send(d, from);
        } else echo(k);
      }
      sel.selectedKeys().clear();
    }
  }
  static void echo(SelectionKey k) throws Exception {
    SocketChannel s = (SocketChannel)k.channel(); ByteBuffer b = (ByteBuffer)k.attachment();
    int n = k.isReadable() ? s.read(b) : 0;
    b.flip(); s.write(b); b.compact();
    if (n < 0 && b.position() == 0) { s.close(); return; }
    k.interestOps((b.position() > 0 ? SelectionKey.OP_WRITE : 0) | (n >= 0 && b.hasRemaining() ? SelectionKey.OP_READ : 0));
  }
}
""", "Blocking": """
import java.net.*;
public class Blocking {
  public static void main(String[] a) throws Exception {
    InetAddress at = InetAddress.getByName(a[0]);
    ServerSocket l = new ServerSocket(8080, 50, at);
    DatagramSocket u = new DatagramSocket(8080, at);
    new Thread(() -> { try {
      DatagramPacket p = new DatagramPacket(new byte[2000], 2000);
      while (true) { p.setLength(2000); u.receive(p); u.send(p); }
    } catch (Exception e) { e.printStackTrace(); } }).start();
    while (true) {
      Socket s = l.accept();
      s.setSoTimeout(20000);
      new Thread(() -> { try (s) { s.getInputStream().transferTo(s.getOutputStream()); } catch (Exception e) { e.printStackTrace(); } }).start();
    }
  }
}
""", "Asks": """
import java.io.*; import java.net.*; import java.util.*;
public class Asks {
  public static void main(String[] a) throws Exception {
    byte[] sent = new byte[1000000], got; new Random(7).nextBytes(sent);
    for (int i = 0; i < 10; i++) try (Socket s = new Socket()) {
      s.connect(new InetSocketAddress(a[0], 8080), 20000);
      Thread t = new Thread(() -> { try { s.getOutputStream().write(sent); s.shutdownOutput(); } catch (IOException e) { e.printStackTrace(); } });
      t.start();
      got = s.getInputStream().readAllBytes(); t.join();
      if (!Arrays.equals(got, sent)) throw new Exception("got " + got.length + " bytes, or others");
    }
    System.out.println("fine");
  }
}
"""}
ECHO = ["socat", "-t", "20", "tcp-listen:8080,fork,reuseaddr", "exec:cat"]

if JAVA:
    @pytest.fixture(scope="session")
    def classes(tmp_path_factory):
        def make(directory):
            for name, text in SOURCES.items():
                (directory / f"{name}.java").write_text(text)
            subprocess.run([f"{JAVA}c", "-d", directory, *directory.glob("*.java")], check=True)
        return made_once(tmp_path_factory, "java", make)

    def exchanged(net, times):
        """Streams that are open at the same time."""
        data = bytes(range(250)) * 200
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(net.b.socket(kind=socket.SOCK_STREAM)) for _ in range(times)]
            for s in streams:
                s.connect((net.a.ip4, 8080))
                s.sendall(data)
            for s in streams:
                with s.makefile("rb") as f:
                    assert f.read(len(data)) == data
                    s.shutdown(socket.SHUT_WR)
                    assert f.read() == b""

    @pytest.mark.parametrize("name", ["Nio", "Blocking"])
    def test_server(net, classes, name):
        server = start(net, [JAVA, "-Xmx256m", "-cp", classes, name, net.a.ip4], 8080)
        with no_kernel_connections(net.a, 50):
            for _ in range(5):
                exchanged(net, 10)
        with net.b.socket() as s:
            def words(n):
                for i in range(n):
                    s.sendto(b"word %d" % i, (net.a.ip4, 8080))
                    assert s.recv(99) == b"word %d" % i
            words(5)
            with no_kernel_datagrams(net, 2):
                words(100)
        ended(server, status=143)
        assert "Exception" not in server.text, server.text

    def test_client(net, classes):
        net.b.popen(ECHO)
        net.b.wait_bound(8080, "tcp")
        with no_kernel_connections(net.a):
            client = net.a.run([JAVA, "-Xmx256m", "-cp", classes, "Asks", net.b.ip4], preload=OURS, timeout=60)
        assert "fine" in client.text, client.text
