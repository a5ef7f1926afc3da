"""Secrets are masked in the known forms of commands and log lines."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbdagent.parse.ceph_keys import MASK, without_keys
from rbdagent.parse.command_line import shown_command
from rbdagent.parse.secrets import command_without_secrets, without_secrets
from tests.support.rows import each_row

WORDS: Final = (
    # Ceph
    "rbd --id u --key={} map k8s/x",
    "rbd --id u --key {} map k8s/x",
    "rbd map k8s/x -o secret={},noudev",
    "ceph --key {} status",
    "ceph config-key set mgr/dashboard/x {}",
    "ceph dashboard ac-user-set-password admin {}",
    "mount -t ceph 10.0.0.1:/ /mnt -o name=u,secret={}",
    "qemu-system-x86_64 -drive file=rbd:k8s/x:id=u:key={}",
    "qemu-img info --object secret,id=s,data={} x",
    "radosgw-admin user create --uid=u --secret-key {}",
    # Flags and variables by name
    "app --password={}",
    "app --password {}",
    "app -password {}",
    "app --db-pass={}",
    "app --pass {}",
    "app --passwd={}",
    "app --pwd {}",
    "app --passphrase {}",
    "app --token={}",
    "app --auth-token {}",
    "app --auth={}",
    "app --api-key {}",
    "app --apikey={}",
    "app --client-secret={}",
    "app --credentials {}",
    "app --session {}",
    "app --cookie={}",
    "app pass={}",
    "app pwd={}",
    "app auth={}",
    "app session={}",
    "app --set auth.rootPassword={}",
    "java -Djavax.net.ssl.keyStorePassword={} App",
    "keytool -list -storepass {}",
    "gpg --batch --passphrase {} -d x",
    "env PGPASSWORD={} psql",
    "env MYSQL_PWD={} mysql",
    "env SSHPASS={} sshpass -e ssh h",
    "env REDISCLI_AUTH={} redis-cli",
    "env AWS_SECRET_ACCESS_KEY={} aws s3 ls",
    "docker run -e DB_PASS={} image",
    "podman run --env=API_TOKEN={} image",
    "mount -t cifs //h/s /mnt -o username=u,password={}",
    "cryptsetup luksOpen /dev/rbd0 x --key-file={}",
    "rsync --password-file={} x h::y",
    "rsync rsync://user:{}@h/x y",
    "kubelet --token {} --node-ip 10.0.0.1",
    "k3s server --token={}",
    # HTTP
    "curl -u user:{} https://h",
    "curl -uuser:{} https://h",
    "curl -sSku user:{} https://h",
    "curl --user user:{} https://h",
    "curl --proxy-user user:{} https://h",
    "curl --oauth2-bearer {} https://h",
    "curl -b sid={} https://h",
    "curl --cookie {} https://h",
    "curl -H X-Custom:{} https://h",
    "wget --http-password={} https://h",
    "wget --header=X-Custom:{} https://h",
    "http -a user:{} https://h",
    "git clone https://user:{}@h/x",
    "git clone https://{}@h/x",
    "pip install --index-url https://user:{}@h/simple x",
    "app https://h/x?access_token={}",
    "app https://h/x?sv=1&sig={}",
    # Databases
    "mysql -u root -p{} shop",
    "mysqldump -uroot -p{} shop",
    "mariadb --password={} shop",
    "psql postgres://user:{}@h/db",
    "psql postgresql://h/db?password={}",
    "mongosh -u u -p {} db",
    "mongo mongodb://user:{}@h/db",
    "redis-cli -a {} ping",
    "redis-cli AUTH {}",
    "redis-cli CONFIG SET requirepass {}",
    "redis-cli -u redis://:{}@h",
    "redis-server --requirepass {}",
    "sqlcmd -S h -U sa -P {}",
    "sqlplus scott/{}@db",
    "influx -t {} query",
    "rabbitmqctl add_user u {}",
    "etcdctl --user root:{} get x",
    # Directories, shares, remote machines
    "sshpass -p {} ssh h",
    "sshpass -p{} ssh h",
    "ldapsearch -D cn=admin -w {}",
    "ldapmodify -w{} -f x",
    "smbclient //h/s -U user%{}",
    "rpcclient --user=user%{} h",
    "ipmitool -H h -U u -P {} power status",
    "snmpget -v3 -u u -A {} h",
    "xfreerdp /v:h /u:u /p:{}",
    "ssh-keygen -N {} -f x",
    "useradd -p {} u",
    "htpasswd -b file user {}",
    # Archives and encryption
    "openssl rsa -passin pass:{} -in x",
    "openssl enc -aes-256-cbc -k {}",
    "7z x -p{} a.7z",
    "zip -P {} a.zip x",
    "unzip -P {} a.zip",
    "pdftk a.pdf input_pw {} output b.pdf",
    # Clouds and clusters
    "docker login -u u -p {} registry",
    "podman login --password {} registry",
    "skopeo copy --src-creds user:{} docker://h/x dir:x",
    "kubectl --token={} get pods",
    "kubectl --token {} get pods",
    "kubectl create secret generic x --from-literal=a={}",
    "helm registry login -u u -p{} h",
    "oc login -u u -p {} h",
    "az login --service-principal -u u -p {}",
    "vault login {}",
    "vault kv put secret/x a={}",
    "aws configure set x {}",
    "mc alias set name https://h user {}",
    "rclone config create name sftp pass {}",
    "rclone obscure {}",
    "npm config set //h/:_authToken {}",
    "timeout 5 /usr/bin/mysql -p{}",
    "kubectl exec x -- env A=b mysql -p{}",
)
"""Commands; a space separates two arguments, and the secret is in one argument."""

SCRIPTS: Final = (
    "mysql -u root -p{} shop",
    "exec mysqldump --password={} shop > /data/x",
    "PGPASSWORD={} psql -h db; sleep 1",
    "sleep 1; PGPASSWORD={} psql -h db",
    "export TOKEN={}",
    "cd /x;sshpass -p {} ssh h",
    "test -f /x && redis-cli -a {} ping || exit 1",
    "x=$(curl -su user:{} https://h)",
    "echo -n {} | cryptsetup luksOpen /dev/rbd0 x -",
    "printf %s {} > /dev/shm/key",
    "cryptsetup luksOpen /dev/rbd0 x <<< {}",
    "set -e\nzip -P {} a.zip x\n",
    "app --password {} --verbose",
    "CLIENT=/usr/bin/mysql -p{} shop",
)
"""Scripts for `sh -c`, with the secret as shlex.quote writes it."""

JSON: Final = (
    '{{"password": {}}}',
    '{{"secrets":{{"userID":"u","anything":{}}}}}',
    '{{"auth": {}, "x": 1}}',
    '{{"list": ["--token", {}]}}',
)
"""JSON, with the secret as json.dumps writes it; also tested as a string within JSON."""

LINES: Final = (
    "rbd args: [--id u -m 10.0.0.1 --key {} map k8s/x], error",
    "key = {}",
    "password: {}, user: x",
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "Authorization: Custom a {} b",
    "Cookie: a=b; sid={}; c=d",
    "Set-Cookie: sid={}; Path=/",
    "cookie=a=b; sid={}; c=d",
    "X-Auth-Key: {}",
    "x-auth-custom: {} x",
    "X-Vault-Token: {}",
    "token: secret: {}",
    "password:\n  {}",
    "key: | {}",
    "failed with bearer {}",
    "request with Basic {}",
    "level=error secret_id={} msg=x",
    "psql: ALTER USER u PASSWORD '{}'",
    "CREATE USER u IDENTIFIED BY '{}'",
    "amqp://user:{}@h:5672/x failed",
    "redis://:{}@h failed",
    "redis://user:with/slash{}@h failed",
    "'password' => {}",
    "['mysql', '--password={}', '-h']",
)
"""Log lines with a secret of one word."""

SHAPES: Final = {
    "CephX key": "AQBPnnpgAAAAABAAcPb8S8gLKXhXJ1yJ5rwQ2A==",
    "CephX key, cut off": "AQBPnnpgAAAAABAAcPb8S8gLKX",
    "CephX key of type aes256k": "AgBPnnpgAAAAACAAcPb8S8gLKXhXJ1yJ5rwQ2AcPb8S8gLKXhXJ1yJ5rwQ2A=",
    "base64": "c29tZXRoaW5nIHNlY3JldCBvZiBzb21lYm9keQ==",
    "token of Kubernetes": "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl",
    "private key": "-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAK -----END RSA PRIVATE KEY-----",
    "key of OpenSSH": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\n",
    "key of PGP": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n",
    "GitHub": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "GitHub, fine-grained": "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "GitLab": "glpat-xxxxxxxxxxxxxxxxxxxx",
    "Slack": "xoxb-123456789012-abcdefghijklmn",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "AWS, temporary": "ASIAIOSFODNN7EXAMPLE",
    "Google": "AIzaSyD-1234567890abcdefghijklmnopqrstu",
    "OpenAI": "sk-abcdefghijklmnopqrstuvwxyz",
    "Stripe": "sk_live_abcdefghijklmnopqrstuvwx",
    "npm": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "PyPI": "pypi-AgEIcHlwaS5vcmcabcdefgh",
    "Vault": "hvs.CAESIabcdefghijklmnop",
    "Docker Hub": "dckr_pat_abcdefghijklmnopqrstuvwxyz",
    "SendGrid": "SG.abcdefghijklmnop.qrstuvwxyz0123456789",
    "age": "AGE-SECRET-KEY-1ABCDEFGHIJKLMNOPQRSTUVWXYZ",
}
"""Secrets that are recognisable by their form, with invented content."""


SECRET: Final = "hunter2-Correct8"  # noqa: S105 - invented


def words_of(template: str, secret: str) -> list[str]:
    return [word.replace("{}", secret) for word in template.split(" ")]


def script_of(template: str, secret: str) -> list[str]:
    return ["/bin/sh", "-c", template.replace("{}", shlex.quote(secret))]


def json_of(template: str, secret: str) -> str:
    return template.format(json.dumps(secret))


def shown_words(template: str, secret: str) -> str:
    return shown_command(tuple(words_of(template, secret)), is_cut=False)


def shown_script(template: str, secret: str) -> str:
    return shown_command(tuple(script_of(template, secret)), is_cut=False)


def shown_json(template: str, secret: str) -> str:
    return without_secrets(json_of(template, secret))


def shown_json_in_json(template: str, secret: str) -> str:
    return without_secrets(json.dumps({"text": json_of(template, secret)}))


def shown_json_argument(template: str, secret: str) -> str:
    return command_without_secrets(["app", "--body", json_of(template, secret)])


def shown_line(template: str, secret: str) -> str:
    return without_secrets(template.replace("{}", secret))


Shown = Callable[[str, str], str]
FORMS: Final = tuple(
    (show, template)
    for show, templates in (
        (shown_words, WORDS),
        (shown_script, SCRIPTS),
        (shown_json, JSON),
        (shown_json_in_json, JSON),
        (shown_json_argument, JSON),
        (shown_line, LINES),
    )
    for template in templates
)
EVERY_FORM: Final = each_row(
    ("show", "template"), FORMS, ids=[f"{show.__name__}-{form}" for show, form in FORMS]
)


@EVERY_FORM
def test_secret_is_masked_or_left_out_in_every_form(show: Shown, template: str) -> None:
    shown = show(template, SECRET)
    assert MASK in shown or shown.endswith(" …")
    assert SECRET not in shown


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
def test_secret_with_a_known_form_is_masked_everywhere(secret: str) -> None:
    end = secret.strip()[-8:]
    for shown in (
        without_secrets(secret),
        without_secrets(f"failed with {secret} again"),
        command_without_secrets(["app", "-x", secret]),
        command_without_secrets(["app", *secret.split()]),
    ):
        assert MASK in shown
        assert end not in shown


OF_ONE_WORD: Final = st.from_regex(r"[A-Za-z0-9][!#-&(-.0-~]{0,30}[A-Za-z0-9=!]", fullmatch=True)
"""Words without quotes, which surround them in such lines, and without a slash, which ends the host
of a URL."""
ANY: Final = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30
).map(lambda text: f"s{text}")


@given(form=st.sampled_from(FORMS), data=st.data())
def test_no_part_of_any_secret_is_shown(form: tuple[Shown, str], data: st.DataObject) -> None:
    """Assert that the output does not depend on the secret."""
    show, template = form
    in_url = "://" in template or show is shown_line
    secret = data.draw(OF_ONE_WORD if in_url else ANY)
    assert show(template, secret) == show(template, SECRET)


CUT: Final = tuple(text for text in (*JSON, *LINES) if "://" not in text)


@pytest.mark.parametrize("template", CUT)
def test_secret_whose_end_was_cut_off_is_masked(template: str) -> None:
    """Assert the mask: log lines and the last arguments of commands are cut before the masking."""
    text = json_of(template, SECRET) if template in JSON else template.replace("{}", SECRET)
    for kept in range(1, len(SECRET)):
        cut = text[: text.index(SECRET) + kept]
        assert without_secrets(cut).endswith(MASK)


# Unchanged texts ----------------------------------------------------------------------------------

ORDINARY: Final = (
    "/usr/bin/kubelet --config=/etc/lab/kubelet.json --kubeconfig=/etc/lab/kubelet.kubeconfig",
    "/usr/local/bin/cephcsi --nodeid worker-2 --type=rbd --drivername=rbd.csi.ceph.com",
    "rbd --id csi -m 10.77.0.1:6789 map k8s/csi-vol-1 --device-type krbd --options noudev,ro",
    "rbd unmap /dev/rbd5 --device-type krbd --options noudev",
    "cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 /dev/rbd1 -d /dev/stdin",
    "mkfs.ext4 -m0 -Enodiscard,lazy_itable_init=1 /dev/rbd0",
    "dd if=/dev/zero of=/data/x bs=1M count=1",
    "sleep 100000",
    "rsync -a /data/ host:/backup/author",
)


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_command_of_storage_is_unchanged(command: str) -> None:
    assert shown_command(tuple(command.split(" ")), is_cut=False) == command


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("mysqld",), "mysqld"),
        (("/usr/sbin/mysqld", "--port", "3306"), "/usr/sbin/mysqld …"),
        (("postgres: checkpointer",), "postgres: …"),
        (("/bin/sh", "-c", "exec mysql -px"), "/bin/sh …"),
        (("https://user:x@h/app",), f"https://{MASK}@h/app"),
    ],
)
def test_of_any_other_program_only_the_name_is_shown(
    arguments: tuple[str, ...], shown: str
) -> None:
    assert shown_command(arguments, is_cut=False) == shown


@pytest.mark.parametrize(
    "line",
    [
        'failed to load secret "ceph/csi-rbd": secrets "csi-rbd" not found',
        "auth: unable to find a keyring on /etc/ceph/ceph.client.admin.keyring",
        "missing encryption passphrase in secrets",
        "rbd: map failed: (1) Operation not permitted",
        "exit status 22: session closed",
    ],
)
def test_line_about_secrets_without_a_secret_is_unchanged(line: str) -> None:
    assert without_secrets(line) == line


def test_other_words_beside_a_secret_are_unchanged() -> None:
    line = without_secrets('args: [--id u --key AQ== map k8s/x] {"password":"x y","pool":"k8s"}')
    assert line == f'args: [--id u --key {MASK} map k8s/x] {{"password":{MASK},"pool":"k8s"}}'
    assert without_keys("map k8s/x key=hunter2,ro") == f"map k8s/x key={MASK},ro"


@pytest.mark.parametrize(
    "line",
    [
        'MountVolume.MountDevice failed for volume "secret-missing-6fe9db" : rpc error',
        'failed to get Secret shop/storage-encryption-secret: secrets "storage" not found',
        "connecting failed: rados: key: Permission denied",
    ],
)
def test_colon_of_a_sentence_ends_a_name(line: str) -> None:
    assert without_secrets(line, is_sentence=True) == line


@pytest.mark.parametrize(
    "line",
    [
        "password={}",
        'token = "{}"',
        '{{"password":"{}"}}',
        '{{\\"token\\": \\"{}\\"}}',
        "rbd --id u --key {} map k8s/x",
        "https://user:{}@registry/v2",
        "Authorization: Basic {}",
    ],
)
def test_secret_in_a_sentence_is_masked(line: str) -> None:
    assert "hunter2" not in without_secrets(line.format("hunter2"), is_sentence=True)
