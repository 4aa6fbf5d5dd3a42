// Reports the process of the window that gets the focus to prepaged. In a session of GNOME under Wayland nobody else knows it:
// there this extension is what `prepage agent` is elsewhere.
//
// As GNOME Shell 45 and later load it. Up to 44 extensions are no modules: for these `make install` leaves out "export default".
// Nothing in here waits, since it runs in the compositor: a report that cannot be sent at once is none.

const {Gio} = imports.gi;

const SOCKET = '/run/prepage/prepage.sock';

/** One call of the service's API (Varlink), which asks for no reply. */
function message(pid) {
    const call = {
        method: 'org.prepage.Prepage1.SwitchBegin',
        parameters: {pid, source: 'focus'},
        oneway: true,
    };
    return new TextEncoder().encode(`${JSON.stringify(call)}\0`);
}

function report(pid) {
    const {UNIX} = Gio.SocketFamily;
    const socket = Gio.Socket.new(UNIX, Gio.SocketType.STREAM, Gio.SocketProtocol.DEFAULT);
    socket.blocking = false;
    try {
        socket.connect(Gio.UnixSocketAddress.new(SOCKET), null);
        socket.send(message(pid), null);
    } catch {
        // Without the service, or while it is full, the session goes on as ever.
    } finally {
        socket.close();
    }
}

export default class FocusReporter {
    enable() {
        this._handler = global.display.connect('notify::focus-window', display => {
            const pid = display.focus_window?.get_pid() ?? 0;
            if (pid > 0)
                report(pid);
        });
    }

    disable() {
        global.display.disconnect(this._handler);
    }
}

// As GNOME Shell up to 44 asks for it.
// eslint-disable-next-line no-unused-vars
function init() {
    return new FocusReporter();
}
