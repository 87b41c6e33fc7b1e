"""A broker with a second door that takes TLS, a client's certificate, a name and a password; and what opens it."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

from tests.kafka.broker import HOST, Broker, _free_port

NAME, PASSWORD = "ann", 'hunt"er2'


class SecuredBroker(Broker):
    """Kafka in `directory`; `secured` is the address of the door and `settings` are what a client needs for it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with ExitStack() as held:
            self.secured = f"{HOST}:{_free_port(held)}"
        certificates = directory / "certificates"
        certificates.mkdir()
        make_certificates(certificates)
        self.settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates / "ca.pem"),
            "ssl.certificate.location": str(certificates / "client.pem"),
            "ssl.key.location": str(certificates / "client.key"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": NAME,
            "sasl.password": PASSWORD,
        }
        both = (certificates / "both.pem", certificates / "server.key", certificates / "server.pem")
        both[0].write_text("".join(part.read_text() for part in both[1:]))
        properties = self._properties.read_text()
        plain = f"listeners=PLAINTEXT://{self.bootstrap},"
        assert plain in properties
        user = PASSWORD.replace('"', '\\\\"')
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        more = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both[0]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_{NAME}="{user}";',
        }
        lines = "".join(f"{name}={value}\n" for name, value in more.items())
        self._properties.write_text(properties.replace(plain, f"{plain}SASL_SSL://{self.secured},") + lines)


def make_certificates(folder: Path) -> None:
    """An authority, and a server's and a client's certificate that it has signed, with their keys in PKCS#8."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    subject = ("-subj", "/CN=headwater test authority", "-days", "2")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", *subject)
    for name in ("server", "client"):
        (folder / f"{name}.cnf").write_text(f"subjectAltName=IP:{HOST}\n")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.cnf")
        request = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("req", "-newkey", "rsa:2048", "-nodes", *request)
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
